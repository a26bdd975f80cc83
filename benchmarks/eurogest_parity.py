"""EuroGEST scores of SmolLM2 in each protocol, compared with reference scores.

    EVALUATOR_DATA=DATA python benchmarks/eurogest_parity.py [--languages ca,cs,de,fi,fr] [--json FILE]

DATA/eurogest/golden_smollm2.tsv has scores of some sentences in five languages: those of both versions of the authors' released
code, and the default protocol's in float64. The largest difference is compared with the tolerance for float32.
"""

import csv
import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from output import benchmark_parser, write_record

from evaluator.datasets.eurogest import GENDERED_FILE, LANGUAGES, NEUTRAL_FILE, QUOTES_FILE, SCAFFOLD_FILE
from evaluator.datasets.registry import folder
from evaluator.demo import demo_model
from evaluator.scoring.driver import execute
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator.tasks.eurogest import EuroGest, EuroGestParameters
from evaluator.tasks.stored import scores_of
from evaluator.vocabulary import DataSource, Protocol_
from evaluator_serving.engine import EngineOptions

CODES = ("ca", "cs", "de", "fi", "fr")

TOLERANCE: dict[Protocol_, float] = {"default": 1e-4, "published": 8.4e-5, "published-2025": 2.6e-3}
"""Of differences of two numbers, each to the tolerances of the values' own list: means 4.2e-5, sums 1.3e-3."""

Golden = Sequence[Mapping[str, str]]


def golden(data: Path, codes: Collection[str] = CODES) -> Golden:
    """The released code's numbers in some languages, one row per sentence."""
    with (data / "eurogest" / "golden_smollm2.tsv").open(encoding="utf8", newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["language"] in codes]


def cut_tables(data: Path, wanted: Golden, out: Path) -> Path:
    """The published tables with these sentences' cells only; returns the folder to give as the data's."""
    made = out / "eurogest"
    made.mkdir(parents=True)
    cells = {(LANGUAGES[row["language"]], row["gest_id"]) for row in wanted}
    for name, headers in ((NEUTRAL_FILE, 1), (GENDERED_FILE, 2)):
        with (data / "eurogest" / name).open(encoding="utf8", newline="") as file:
            rows = list(csv.reader(file))
        columns = rows[0][2:-1]
        for row in rows[headers:]:
            row[2:-1] = [cell if (column, row[0]) in cells else "" for column, cell in zip(columns, row[2:-1], strict=True)]
        with (made / name).open("w", encoding="utf8", newline="") as file:
            csv.writer(file).writerows(rows)
    for name in (SCAFFOLD_FILE, QUOTES_FILE):
        (made / name).write_bytes((data / "eurogest" / name).read_bytes())
    return out


def scored(tables: Path, model: str, codes: Sequence[str], out: Path, protocol: Protocol_) -> pl.DataFrame:
    """In float32 as the released code; by default in float64, as the numbers that it is compared with."""
    options = EngineOptions(dtype="float64" if protocol == "default" else "float32")
    task = EuroGest("eurogest", EuroGestParameters(languages=tuple(codes)))
    spec = ModelSpec(model, "transformers", options=options)
    outcome = execute(RunSpec((spec,), (task,), out, protocol=protocol, data=DataSource(tables)))
    assert not outcome.errors
    assert outcome.run.failures().is_empty()
    return scores_of(outcome.run, task.name)


def furthest(scores: pl.DataFrame, wanted: Golden, protocol: Protocol_) -> float:
    """The largest difference of a score; there is one for each sentence."""
    found = {(language, row): x for language, row, x in scores.select("language", "row", "score").iter_rows()}
    assert len(found) == len(wanted)
    return max(abs(found[row["language"], int(row["gest_id"])] - _released(row, protocol)) for row in wanted)


def _released(row: Mapping[str, str], protocol: Protocol_) -> float:
    if protocol == "default":
        return float(row["default_strip_s"])
    version = "C" if protocol == "published" else "A"
    return float(row[f"{version}_a"]) - float(row[f"{version}_b"])


def main() -> None:
    """Compare, print, write JSON."""
    parser = benchmark_parser(__doc__, __file__)
    parser.add_argument("--languages", default=",".join(CODES), help="comma-separated codes")
    arguments = parser.parse_args()
    codes, data = arguments.languages.split(","), folder(DataSource())
    wanted = golden(data, codes)
    report: dict[str, Any] = {"languages": codes, "sentences": len(wanted), "protocols": {}}
    with tempfile.TemporaryDirectory() as scratch:
        tables = cut_tables(data, wanted, Path(scratch) / "data")
        for protocol, tolerance in TOLERANCE.items():
            scores = scored(tables, str(demo_model()), codes, Path(scratch) / protocol, protocol)
            most = furthest(scores, wanted, protocol)
            report["protocols"][protocol] = {"max_difference": most, "tolerance": tolerance, "equal": most < tolerance}
    write_record(arguments.json, report)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
