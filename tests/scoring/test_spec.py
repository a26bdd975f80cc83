"""Names: of models on the command line, and of the folders that runs go to by default."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.scoring.model_names import check_names
from evaluator.scoring.spec import ModelSpec, default_folder, named_model
from evaluator_serving.errors import InputError


@pytest.mark.parametrize(
    ("text", "label", "spec"),
    [
        ("gpt2", "", "gpt2"),
        ("org/model@main", "", "org/model@main"),
        ("mine=gpt2", "mine", "gpt2"),
        ("my model = org/model@main", "my model", "org/model@main"),
        ("mine=./a=b", "mine", "./a=b"),
        ("mine=~/models/a", "mine", "~/models/a"),
        ("org/model@a=b", "", "org/model@a=b"),
        ("./lr=3e-5", "", "./lr=3e-5"),
        ("~/lr=3e-5", "", "~/lr=3e-5"),
        ("lr=3e-5", "", "lr=3e-5"),
        ("lr=1e-4", "lr", "1e-4"),
    ],
)
def test_named_models(text: str, label: str, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lr=3e-5` is a folder here, `lr=1e-4` isn't."""
    (tmp_path / "lr=3e-5").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named_model(text) == (label, spec)


@pytest.mark.parametrize("text", ["=gpt2", "mine=", "=", " =gpt2"])
def test_half_a_name_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not NAME=MODEL: write for example"):
        named_model(text)


def test_equal_names_say_how_to_give_another() -> None:
    models = [ModelSpec(f"./{folder}/final") for folder in ("a", "b")]
    with pytest.raises(InputError, match=r"models ./a/final and ./b/final would both be called 'final': .*--model NAME=MODEL"):
        check_names(models)
    check_names([models[0], ModelSpec("./b/final", label="late")])
    with pytest.raises(InputError, match="longer than 200 bytes"):
        check_names([ModelSpec("gpt2", label="é" * 101)])
    with pytest.raises(InputError, match=r"'two\\nlines' holds characters that can't be printed: name it"):
        check_names([ModelSpec("gpt2", label="two\nlines")])


@pytest.mark.parametrize(
    ("tasks", "models", "folder"),
    [
        (["gest"], ["gpt2"], "gest-gpt2"),
        (["gest", "winobias"], ["gpt2"], "gest-winobias-gpt2"),
        (["gest"], ["org/model@main"], "gest-org--model@main"),
        (["gest"], ["bert-base-uncased", "gpt2"], "gest-bert-base-uncased,gpt2"),
        (["gest"], ["gpt2+chat-user", "a b"], "gest-gpt2+chat-user,a--b"),
    ],
)
def test_default_folders_hold_all_names(tasks: list[str], models: list[str], folder: str) -> None:
    assert default_folder(tasks, models) == Path("runs") / folder


names = st.lists(st.text("abcdé漢/ ,*?+-@=.", min_size=1, max_size=60), min_size=1, max_size=30)


@given(names, names)
def test_default_folders_are_short_and_safe_and_differ_where_names_were_cut(first: list[str], second: list[str]) -> None:
    one, two = default_folder(["gest"], first), default_folder(["gest"], second)
    assert one == default_folder(["gest"], list(first))
    assert one.parent == Path("runs")
    assert len(one.name.encode()) <= 100
    assert not set(one.name) & set("/ *?")
    if first != second and 100 in (len(one.name.encode()), len(two.name.encode())):
        assert one != two
    assert default_folder(["gest"], [*first, "x" * 100]) != one
