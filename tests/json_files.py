"""Changes to JSON files."""

import json
from pathlib import Path


def edit(file: Path, **changes: object) -> None:
    """Set entries of a JSON file, or remove those that are None."""
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
