"""Whatever models, tasks and parts are called, they stay in the run's folder, and what was called plainly keeps its name."""

import re
from pathlib import Path, PurePosixPath, PureWindowsPath

import polars as pl
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from evaluator.scoring.model_names import check_names
from evaluator.scoring.spec import ModelSpec
from evaluator.store.names import folder_name, plain_name
from evaluator.store.run import Run
from evaluator_serving.errors import InputError

HOSTILE = ["../x", "..", ".", "/etc/passwd", "a/../../b", "nul", "COM1.txt", "con", "a\0b", "x" * 5000, "é" * 300, "C:\\x", ""]


@given(st.one_of(st.text(max_size=400), st.sampled_from(HOSTILE)))
@example("..")
@example("aux.parquet")
@example("х" * 4000)
def test_a_name_is_one_part_of_a_path_on_every_system(name: str) -> None:
    made = folder_name(name)
    assert made == folder_name(name)
    assert PurePosixPath("run", made).parts == ("run", made)
    assert PureWindowsPath("run", made).parts == ("run", made)
    assert made not in ("", ".", "..")
    assert not made.startswith("-")
    assert not PureWindowsPath(made).is_reserved()
    assert len(made.encode()) <= 200
    assert "\0" not in made
    assert plain_name(made, "run") == made


@given(
    st.from_regex(r"[A-Za-z0-9_][\w.@=-]{3,30}[a-z]", fullmatch=True).filter(
        lambda name: not PureWindowsPath(name).is_reserved()
    )
)
def test_plain_names_stay_what_they_are(name: str) -> None:
    assume(not PureWindowsPath(name).is_reserved())
    assert folder_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b", "a\\b", "C:x", "a\0"])
def test_a_record_names_no_file_outside_of_its_run(name: str) -> None:
    with pytest.raises(InputError, match="is not in the run"):
        plain_name(name, "run")


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_imported_scores_of_any_name_lie_in_the_run(name: str, tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "runs" / "run", protocol="default", provenance={})
    place = {"language": "en", "template": "3", "sample": [0], "group": "1", "score": [0.5]}
    run.add_imported(name, {}, name, pl.DataFrame(place), "sha", part=name)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert all((run.path / ("imported" if path.suffix == ".parquet" else "")) in path.parents for path in files)
    (entry,) = run.record["models"].values()
    assert run.imported_scores(name, name, entry)[0]["score"].to_list() == [0.5]


def test_names_that_would_share_a_folder_are_refused() -> None:
    with pytest.raises(InputError, match="would both be called"):
        check_names([ModelSpec("a", label="../x"), ModelSpec("b", label="..--x")])
    with pytest.raises(InputError, match=re.escape("can't be printed")):
        check_names([ModelSpec("a", label="a\0b")])
    with pytest.raises(InputError, match="'all' is reserved for all models together"):
        check_names([ModelSpec("a", label="all")])
