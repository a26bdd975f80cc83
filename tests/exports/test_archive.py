"""Citations and archives: valid by their own tools, and proven by computing again."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml
from click.testing import CliRunner, Result

import evaluator
from evaluator.cli import cli
from evaluator.datasets.registry import datasets, published_scores
from evaluator.exports.citation import references
from evaluator.tasks import known_tasks

ROOT = Path(__file__).parents[2]
Validator = Callable[..., str]


def call(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_the_citation_file(validator: Validator) -> None:
    validator("-m", "cffconvert.cli.cli", "--validate", "-i", ROOT / "CITATION.cff")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == evaluator.__version__


def test_every_reference_is_there() -> None:
    named = {key for known in (*datasets().values(), *published_scores().values()) for key in known.references}
    named |= {key for known in known_tasks() if known.made is not None for key in known.made.references}
    assert named == references().keys()
    assert all(known.made.references for known in known_tasks() if known.made is not None)
    for key, entry in references().items():
        assert re.fullmatch(r"@\w+\{" + key + r",\n(  \w+ = \{.*\},\n)+\}\n", entry), key


def test_what_a_run_cites(run: Path) -> None:
    done = call("cite", run)
    assert done.exit_code == 0
    entries = re.findall(r"^@\w+\{(\w+),", done.stdout, re.M)
    assert sorted(entries) == ["eurogest", "genderbench", "gest", "stereoset", "stereotype_evaluator"]
    assert f"version = {{{evaluator.__version__}}}" in done.stdout
    digest = evaluator.open(run).record["tasks"]["gest"]["sha256"]["gest.csv"]
    assert f"% gest: data set gest (gest.csv sha256 {digest})" in done.stdout


@pytest.fixture
def archive(run: Path, tmp_path: Path) -> Path:
    done = call("archive", run, tmp_path / "run.zip", "--licence", "CC-BY-4.0")
    assert done.exit_code == 0, done.output
    return tmp_path / "run.zip"


@pytest.mark.parametrize("which", ["run", "translated"])
def test_an_archive_is_a_valid_crate_and_holds(
    which: str, tmp_path: Path, validator: Validator, request: pytest.FixtureRequest
) -> None:
    source = tmp_path / "source"
    shutil.copytree(request.getfixturevalue(which), source)
    assert call("archive", source, tmp_path / "a.zip", "--scale", "log10").exit_code == 0
    assert validator(Path(__file__).with_name("validate_crate.py"), tmp_path / "a.zip", "REQUIRED") == ""
    shutil.rmtree(source)  # nothing else is needed
    done = call("verify", tmp_path / "a.zip")
    assert done.exit_code == 0, done.output
    assert "rates hold" in done.output


def test_an_archive_holds_no_sentence_unless_asked(run: Path, archive: Path, data_dir: Path, tmp_path: Path) -> None:
    sentences = pl.read_csv(data_dir / "gest" / "gest.csv")["sentence"].to_list()
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "plain")
        assert not any(name.startswith("texts/") for name in packed.namelist())
    held = [path.read_text() for path in (tmp_path / "plain").rglob("*.*") if path.suffix in (".json", ".csv")]
    for path in (tmp_path / "plain").rglob("*.parquet"):
        held += [text for column in pl.read_parquet(path).select(pl.col(pl.String)) for text in column.drop_nulls()]
    everything = "\n".join(held)
    assert not [sentence for sentence in sentences if sentence in everything]
    assert str(run.parent) not in everything  # no path of the machine either
    assert call("archive", run, tmp_path / "text.zip", "--text", "--data", data_dir).exit_code == 0
    with zipfile.ZipFile(tmp_path / "text.zip") as packed:
        assert pl.read_csv(packed.read("texts/gest.csv"))["text"].to_list()[:3] == sentences[:3]
        graph = json.loads(packed.read("ro-crate-metadata.json"))["@graph"]
    (licence,) = (entity["license"] for entity in graph if entity["@id"] == "texts/stereoset-en.csv")
    assert licence == {"@id": "https://spdx.org/licenses/CC-BY-SA-4.0"}
    assert call("verify", tmp_path / "text.zip").exit_code == 0


def test_what_was_altered_is_told(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    lines = parts["rates.csv"].decode().splitlines()
    at = next(number for number, line in enumerate(lines) if ",g_s," in line and line.split(",")[6])
    fields = lines[at].split(",")
    fields[6] = repr(float(fields[6]) * (1 + 1e-9))
    lines[at] = ",".join(fields)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as packed:
        for name, part in parts.items():
            packed.writestr(name, "\n".join([*lines, ""]) if name == "rates.csv" else part)
    done = call("verify", other)
    assert done.exit_code == 3
    assert "rates.csv was altered (another sha256)" in done.output
    assert re.search(rf"{fields[0]}/{fields[1]}/.*g_s: {re.escape(fields[6])} in the archive", done.output)
    (tmp_path / "no.zip").write_bytes(b"PK")
    assert "isn't an archive" in str(call("verify", tmp_path / "no.zip").exception)
