"""`evaluator new`: every example passes its own validator, as it is and with all that is commented out."""

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluator.cli import cli
from evaluator.sweep import config
from evaluator.sweep.config import read_sweep
from evaluator.tasks import chosen_tasks, known_parameters
from evaluator.vocabulary import DataSource


def written(kind: str, folder: Path) -> Path:
    """The example in a file."""
    result = CliRunner().invoke(cli, ["new", kind])
    assert result.exit_code == 0, result.output
    path = folder / (f"{kind}.csv" if kind.endswith("samples") else f"{kind}.toml")
    path.write_bytes(result.stdout_bytes)
    return path


def test_a_definition_and_its_samples_are_a_task(tmp_path: Path) -> None:
    (task,) = chosen_tasks(("gest",), samples=written("samples", tmp_path), templates=written("definition", tmp_path))
    loaded = task.load(DataSource())
    assert (task.name, task.heads) == ("age", {"masked", "causal"})
    assert set(loaded.frame["group"]) == {"frail", "forgetful", "reckless", "trendy", "neither"}
    assert loaded.frame["family"].sum() == 1  # the topic is found
    for head, templates in (("masked", 2), ("causal", 1)):
        rendered = task.render(loaded, frozenset({head}), "default")
        assert rendered.table.height == templates * loaded.frame.height


def test_the_samples_are_refused_by_another_definition(tmp_path: Path) -> None:
    """So the first test can fail: GEST's own definition has other columns."""
    with pytest.raises(Exception, match="stereotype"):
        chosen_tasks(("gest",), samples=written("samples", tmp_path))[0].load(DataSource())


def test_pairs_are_a_task(tmp_path: Path) -> None:
    samples, definition = written("pair-samples", tmp_path), written("pairs", tmp_path)
    (task,) = chosen_tasks(("pairs",), samples=samples, templates=definition)
    loaded = task.load(DataSource())
    assert (task.name, loaded.failures, loaded.frame.height) == ("age-pairs", (), 6)
    assert set(loaded.frame["group"]) == {"technology", "memory"}
    for head, metrics in (("masked", 3), ("causal", 3)):
        rendered = task.render(loaded, frozenset({head}), "default").table
        assert rendered["template"].n_unique() == metrics


def test_what_pairs_have_commented_out_is_right_too(tmp_path: Path) -> None:
    samples, definition = written("pair-samples", tmp_path), written("pairs", tmp_path)
    text = re.sub(r"^# (?=[a-z_]+ = )", "", definition.read_text(), flags=re.M)
    definition.write_text(re.sub(r"^language = .*\n", "", text, flags=re.M))
    lines = samples.read_text().splitlines()
    samples.write_text("\n".join([lines[0] + ",direction,language", *(line + ",stereo,en" for line in lines[1:])]) + "\n")
    (task,) = chosen_tasks(("pairs",), samples=samples, templates=definition)
    frame = task.load(DataSource()).frame
    assert (set(frame["direction"]), set(frame["language"])) == ({"stereo"}, {"en"})


def test_a_sweep_is_read(tmp_path: Path) -> None:
    spec = read_sweep(written("sweep", tmp_path))
    assert [model.name for model in spec.models] == ["HuggingFaceTB/SmolLM2-135M", "smol-chat"]
    assert [task.name for task in spec.tasks] == ["gest-demo"]


def test_what_a_sweep_has_commented_out_is_right_too(tmp_path: Path) -> None:
    path = written("sweep", tmp_path)
    text = re.sub(r"^# (?=[a-z_]+ = |\[\[models|\[task)", "", path.read_text(), flags=re.M)
    without_files = re.sub(
        r"^(samples|encoding|templates|data|wording|translations) = .*\n|^\[task.gest-mt\]\n", "", text, flags=re.M
    )
    path.write_text(without_files.replace('tasks = ["gest-demo"]', 'tasks = ["gest-demo", "gest", "gest-who", "eurogest"]', 1))
    spec = read_sweep(path)
    assert [task.name for task in spec.tasks] == ["gest-demo", "gest", "gest-who-text-16tokens", "eurogest-cs+de-N"]
    assert len(spec.models) == 10  # five under two conditions
    assert spec.limit == 100
    said = tomllib.loads(text)
    given = set(known_parameters())
    assert set(said) - given == set(config.Sweep.model_fields)  # no key is missing in the example
    assert {key for table in said["task"].values() for key in table} == given
    assert {key for model in said["models"] for key in model} | set(said["defaults"]) == set(config.ModelEntry.model_fields)


def test_an_unknown_kind_is_told() -> None:
    result = CliRunner().invoke(cli, ["new", "nothing"])
    assert result.exit_code == 2
    assert "'definition', 'samples', 'pairs', 'pair-samples', 'sweep'" in result.output
