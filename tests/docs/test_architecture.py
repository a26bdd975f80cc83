"""docs/architecture.md: every file that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_path_exists() -> None:
    paragraphs = re.split(r"\n(?=\d+\. |- |\n)", (ROOT / "docs" / "architecture.md").read_text(encoding="utf8"))
    named = 0
    for paragraph in paragraphs:
        places = [ROOT, ROOT / "serving" / "evaluator_serving"]
        for path in re.findall(r"`([\w./]+(?:/|\.py|\.tsv|\.toml))`", paragraph):
            found = next((place / path for place in reversed(places) if (place / path).exists()), None)
            assert found, f"{path} in: {paragraph[:80]}"
            named += 1
            places.append(found if found.is_dir() else found.parent)
    assert named > 30
