"""Writing a benchmark's results."""

import json
from pathlib import Path
from typing import Any


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
