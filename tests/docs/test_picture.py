"""The picture that README and the documentation begin with is drawn by the program, from numbers alone."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parents[2]


def said(picture: str) -> list[str]:
    """The texts of a picture in their order."""
    return re.findall(r">([^<>\n]+)</text>", picture)


def test_the_picture_is_what_the_program_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "docs/picture.py"), str(tmp_path)], check=True, timeout=120)
    numbers = pl.read_csv(ROOT / "docs/picture.csv", schema_overrides={"template": pl.String})
    for name in ("overview-light.svg", "overview-dark.svg"):
        kept, drawn = ((folder / name).read_text(encoding="utf8") for folder in (ROOT / "docs", tmp_path))
        assert said(kept) == said(drawn)  # where a text stands hangs on the machine's fonts
        assert set(numbers["model"]) <= set(said(kept))
        assert len(kept.encode()) < 60_000
        assert name in (ROOT / "README.md").read_text()
        assert f"{name}#only-{name[9:-4]}" in (ROOT / "docs/index.md").read_text()


def test_it_holds_no_sentence_of_a_data_set() -> None:
    numbers = pl.read_csv(ROOT / "docs/picture.csv")
    assert set(numbers["measure"]) == {"g_s"}
    assert numbers.select(pl.col(pl.String).str.len_chars().max()).max_horizontal().item() < 30
