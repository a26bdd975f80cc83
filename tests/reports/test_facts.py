"""Facts of models: from run.json, from a user's table, and what is wrong with a table in one line."""

from pathlib import Path

import pytest

from evaluator.reports.facts import ModelFacts, model_facts
from evaluator_serving.errors import InputError

MODELS = {
    "small": {"spec": "org/small", "facts": {"parameters": 135_000_000, "family": "llama"}},
    "adapted": {"spec": "./adapter", "facts": {"parameters": 135_000_000, "family": "llama"}, "adapter": {"base": "org/small"}},
    "old": {"imported": True},
}


def table(folder: Path, text: str) -> Path:
    path = folder / "models.csv"
    path.write_text(text, encoding="utf8")
    return path


def test_the_configuration_and_the_adapter_say() -> None:
    known = model_facts(MODELS)
    assert known["small"] == ModelFacts(135_000_000, "llama")
    assert known["adapted"] == ModelFacts(135_000_000, "llama", base="small")
    assert known["old"] == ModelFacts()


def test_a_table_adds_and_wins(tmp_path: Path) -> None:
    text = "model,parameters,tuned,family,step,elsewhere\n".replace(",elsewhere", "")
    path = table(tmp_path, text + "old,7B,yes,,1e3\nsmall,,no,owl,\nnot in the run,1,no,x,2\n")
    known = model_facts(MODELS, path)
    assert known["old"] == ModelFacts(7e9, None, tuned=True, step=1000.0)
    assert known["small"] == ModelFacts(135_000_000, "owl", tuned=False)
    assert known["adapted"].family == "llama"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,size\nold,7B\n", "unknown column 'size': give a CSV file with a column model"),
        ("parameters\n7B\n", "no column 'model'"),
        ("model,parameters\nold,many\n", "line 2, parameters: 'many' isn't a number: write 7000000000, 7e9 or 7B"),
        ("model,parameters\nold,-3\n", "isn't a number"),
        ("model,tuned\nold,maybe\n", "line 2, tuned: expected yes or no, not 'maybe'"),
        ("model,tuned\nold,yes\nold,no\n", "line 3: model 'old' appears twice"),
        ("model,tuned\nnone,yes\n", "it has none of the run's models, which are adapted, old, small"),
        ("model,tuned\nold\n", "line 2: 1 field instead of 2"),
        ("model,model\nold,a\n", "more than one column 'model' in line 1"),
        ("", "no column 'model'"),
    ],
)
def test_what_is_wrong_with_a_table(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        model_facts(MODELS, table(tmp_path, text))
    assert said in str(error.value)
    assert "models.csv" in str(error.value)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: .*give a CSV file with a column model"):
        model_facts(MODELS, tmp_path / "nothing.csv")
