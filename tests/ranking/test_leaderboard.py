"""The leaderboard: ranks by hand and by brute force, draws that give the report's intervals, what isn't ranked, its files."""

import itertools
import json
import math
import re
import shutil
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import evaluator
from evaluator.cli import cli
from evaluator.imports.gest_predictions import import_predictions
from evaluator.ranking.board import VALUES, Board, BoardColumn, BoardRow
from evaluator.ranking.collect import collect
from evaluator.ranking.ranks import ranks
from evaluator.ranking.write import PAGE, TABLE, render, write
from evaluator.reports.report import measured
from evaluator.store.run import Run
from evaluator.vocabulary import DataSource, MeasureOptions
from tests.made_up_runs import write_gest, write_predictions


def test_ranks_swaps_and_their_intervals_by_hand() -> None:
    values = np.array([1.0, 3.0, 2.0])
    draws = np.array([[1.0, 1.0, 1.0, 2.5], [3.0, 3.0, 3.0, 3.0], [2.0, 2.0, 4.0, 2.0]])
    found = ranks(values, draws)
    assert found.rank.tolist() == [3, 1, 2]
    # the second model is below the third in one of four resamples, the third below the first in one
    assert found.swaps[1] == 0.25
    assert found.swaps[2] == 0.25
    assert math.isnan(found.swaps[0])
    assert (found.low.tolist(), found.high.tolist()) == ([2, 1, 1], [3, 2, 3])


def test_ranks_are_those_of_a_loop() -> None:
    random = np.random.default_rng(3)
    values = random.normal(size=20)
    draws = values[:, None] + random.normal(scale=0.5, size=(20, 400))
    found = ranks(values, draws)
    places = [[1 + sum(other > draws[i, b] for other in draws[:, b]) for b in range(400)] for i in range(20)]
    order = sorted(range(20), key=lambda i: -values[i])
    for i in range(20):
        ordered = sorted(places[i])
        assert found.rank[i] == 1 + order.index(i)
        assert (found.low[i], found.high[i]) == (ordered[10], ordered[390])
    for above, below in itertools.pairwise(order):
        assert found.swaps[above] == sum(draws[above] <= draws[below]) / 400


def test_equal_models_and_unknown_draws() -> None:
    equal = ranks(np.array([2.0, 2.0]), np.array([[1.0, 2.0], [1.0, 2.0]]))
    assert equal.rank.tolist() == [1, 1]
    assert equal.swaps[0] == 0.5
    unknown = ranks(np.array([2.0, 1.0]), np.array([[1.0, 2.0], [np.nan, 2.0]]))
    assert (unknown.rank.tolist(), unknown.low.tolist()) == ([1, 2], [1, 0])
    assert np.isnan(unknown.swaps).all()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gest(tmp_path_factory.mktemp("data"), 160)


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three generative models and a masked one, in two runs."""
    random = np.random.default_rng(0)
    noise = random.normal(scale=0.3, size=160)
    made = []
    for folder, kind, models in (("one", "glm", {"a": 0.1, "b": 0.4, "<b>c": 0.3}), ("two", "mlm", {"m": 0.2})):
        files = tmp_path_factory.mktemp(folder)
        for model, log10 in models.items():
            half = np.where(np.arange(160) % 16 >= 7, log10 / 2, -log10 / 2)
            write_predictions(files, model, *(half + np.roll(noise, -k) for k in range(4 if kind == "mlm" else 2)))
        out = tmp_path_factory.mktemp("runs") / folder
        import_predictions([files], kind, DataSource(data), out)  # type: ignore[arg-type]
        made.append(out)
    return made


def test_draws_give_the_intervals_of_the_report(runs: list[Path]) -> None:
    options = MeasureOptions(resamples=200)
    board = collect([Run.open(path) for path in runs], options)
    assert board.draws is not None
    for path in runs:
        rows = measured(Run.open(path), "gest", options).rows.filter(measure="g_s", template="all")
        for row in rows.iter_rows(named=True):
            (at,) = [i for i, entry in enumerate(board.entries) if entry.model == row["model"]]
            mine = board.values.with_row_index("row").filter(entry=at)["row"][0]
            low, high = np.quantile(board.draws[mine], (0.025, 0.975))
            assert low == pytest.approx(row["low"], rel=1e-6)
            assert high == pytest.approx(row["high"], rel=1e-6)


def test_models_are_ranked_among_those_of_their_kind(runs: list[Path], tmp_path: Path) -> None:
    table = evaluator.leaderboard(*runs, out=tmp_path / "board", resamples=200)
    ranked = {row["model"]: row for row in table.iter_rows(named=True)}
    assert {name: (row["gest.g_s.rank"], row["gest.g_s.of"]) for name, row in ranked.items()} == {
        "b": (1, 3),
        "<b>c": (2, 3),
        "a": (3, 3),
        "m": (1, 1),
    }
    # the noise is the same for all: the same resamples move all alike, and no order is ever swapped
    assert [ranked[name]["gest.g_s.swaps"] for name in ("b", "<b>c", "a")] == [0.0, 0.0, None]
    assert ranked["m"]["gest.g_s.way"].startswith("masked; templates 1, 2, 3, 4; protocol published, data ")
    assert ranked["m"]["run"] == "two"
    kept = pl.read_csv(tmp_path / "board" / TABLE)
    assert kept["gest.g_s.value"].to_list() == table["gest.g_s.value"].to_list()
    page = (tmp_path / "board" / PAGE).read_text()
    told = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [column["shown"] for column in told["columns"]] == ["gest g_s"]
    assert {row[0] for row in told["rows"]} == set(ranked)
    assert "<b>c" not in page  # a name is no markup
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_script_reads_what_the_page_holds(runs: list[Path], tmp_path: Path) -> None:
    """Elements, keys and places in rows and cells: the page and its script agree on them."""
    evaluator.leaderboard(*runs, out=tmp_path, resamples=20)
    page = (tmp_path / PAGE).read_text()
    script = page.partition('<script class="page">')[2].partition("</script>")[0]
    told = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    ids = re.findall(r"""(?:getElementById|\bof|offer)\("([\w-]+)"|DataTable\("#([\w-]+)\"""", script)
    wanted = {name for pair in ids for name in pair if name} | set(re.findall(r'\["(family.*?)"\]', script)[0].split('", "'))
    assert wanted <= set(re.findall(r'id="([\w-]+)"', page))
    assert len(wanted) == 8  # the table, its data, six filters
    assert set(re.findall(r"\bboard\.(\w+)", script)) == told.keys()
    assert set(re.findall(r"\bcolumn\.(\w+)", script)) == told["columns"][0].keys()
    (facts,) = re.findall(r"const FACTS = (\d+);", script)
    for row in told["rows"]:
        assert len(row) == int(facts) + len(told["columns"])
        assert all(len(cell) == 1 + max(map(int, re.findall(r"\bcell\[(\d+)\]", script))) for cell in row[int(facts) :])
    assert len(re.findall(r"^    \{ title: ", script, re.M)) == int(facts)
    assert max(map(int, re.findall(r"\brow\[(\d+)\]", script))) < int(facts)


def test_part_of_the_samples_is_not_ranked(runs: list[Path], tmp_path: Path) -> None:
    record = Run.open(runs[0]).record
    before = json.dumps(record)
    record["models"]["b"]["asked"] = {"gest": {"limit": 32, "seed": 0}}
    (runs[0] / "run.json").write_text(json.dumps(record))
    try:
        table = evaluator.leaderboard(*runs, resamples=20)
    finally:
        (runs[0] / "run.json").write_text(before)
    row = table.filter(model="b").row(0, named=True)
    assert (row["gest.g_s.rank"], row["gest.g_s.partial"]) == (None, "only 32 of 160 samples were scored (limit)")
    assert table.filter(model="<b>c")["gest.g_s.rank"].to_list() == [1]


def test_users_are_told_why_no_model_is_ranked(runs: list[Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    for entry in record["models"].values():
        entry["asked"] = {"gest": {"limit": 32, "seed": 0}}
    (run / "run.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match=r"no model is ranked.*\(.*: only 32 of 160 samples were scored \(limit\)\); repeat"):
        evaluator.leaderboard(run, resamples=20)


def test_the_command_and_its_errors(runs: list[Path], tmp_path: Path) -> None:
    facts = tmp_path / "models.csv"
    facts.write_text("model,parameters,family,release\nb,7B,big,2024-05-01\n")
    out = tmp_path / "board"
    arguments = [str(path) for path in runs]
    done = CliRunner().invoke(cli, ["leaderboard", *arguments, "--out", str(out), "--models", str(facts), "--resamples", "20"])
    assert done.exit_code == 0, done.output
    assert f"4 models: {out / PAGE}" in done.stderr
    row = pl.read_csv(out / TABLE).filter(model="b").row(0, named=True)
    assert (row["parameters"], row["family"], row["date"]) == (7e9, "big", "2024-05-01")
    for words, said in (
        (arguments[:1] * 2, "a run is given twice"),
        ([], "a leaderboard needs runs"),
        ([*arguments, "--task", "nothing"], "no run has a task 'nothing': there are gest"),
    ):
        assert said in str(CliRunner().invoke(cli, ["leaderboard", *words, "--out", str(out)]).exception)


def test_many_models_are_quick_and_the_page_is_small(tmp_path: Path) -> None:
    models, tasks = 400, 5
    random = np.random.default_rng(0)
    places = np.indices((tasks, models)).reshape(2, -1)
    values = np.exp(random.normal(0.2, 0.2, places.shape[1]))
    rows = {"entry": places[1], "column": places[0], "value": values, "low": values * 0.9, "high": values * 1.1}
    frame = pl.DataFrame({**rows, "way": "generative", "partial": None}, schema=VALUES)
    draws = values[:, None] * np.exp(random.normal(0, 0.05, (len(values), 1000)))
    entries = tuple(BoardRow(f"model-{i}", "run", "family", 1e9, None, "2026-01-01") for i in range(models))
    board = Board("Made up", tuple(BoardColumn(f"t{t}", f"t{t}", "en") for t in range(tasks)), entries, frame, draws)
    start = time.process_time()
    ranked = board.ranked()
    write(board, ranked, board.wide(ranked), tmp_path)
    assert time.process_time() - start < 5.0 * models * tasks / 20_000 + 2  # of 2,000 models × 10 tasks; the page's libraries
    assert len(render(board, ranked)) - 140_000 < 10e6 * models * tasks / 20_000
