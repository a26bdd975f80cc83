"""docs/method.md: what the code cites is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADINGS = set(re.findall(r"^#+ ([\d.]*\d)", (ROOT / "docs" / "method.md").read_text(encoding="utf8"), re.MULTILINE))
CITED = re.compile(r"method(?:\.md)?:? §((?:[\d.]*\d(?:, §)?)+)|method\.md(?! §)")


@pytest.mark.parametrize("folder", ["evaluator", "serving", "kernels", "benchmarks", "tests"])
def test_every_section_that_the_code_cites_is_a_heading(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        if path == Path(__file__):
            continue
        for found in CITED.finditer(path.read_text(encoding="utf8")):
            assert found[1], f"{path}: cite a section of method.md: method.md §1.3"
            assert set(found[1].split(", §")) <= HEADINGS, f"{path}: {found[0]}"


def test_sections_are_cited_at_all() -> None:
    assert {"0", "1", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2", "3", "6"} <= HEADINGS
