"""`evaluator report`, `scores` and `import` from the command line: stdout, stderr and exit codes."""

import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from evaluator.cli import cli
from evaluator.cli import output as output_module
from evaluator.store.answers import answers_frame
from evaluator.store.run import Run
from evaluator.tasks import task
from evaluator.tasks.stored import scores_of, task_entry
from evaluator.vocabulary import SCORES, TIDY, DataSource, Samples
from evaluator_serving.answers import Answer
from tests.made_up_runs import write_gest, write_predictions


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def output(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 64 sentences, four of each stereotype."""
    return write_gest(tmp_path_factory.mktemp("data"), 64)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two imported generative models."""
    folder = tmp_path_factory.mktemp("files")
    for shift, model in enumerate(("one", "two")):
        lines = ([((i * 7 + k + shift) % 11 - 5) / 10 + (i % 16) / 30 for i in range(64)] for k in (0, 1))
        write_predictions(folder, model, *lines)
    out = tmp_path_factory.mktemp("runs") / "run"
    result = invoke("import", "gest-predictions", "--kind", "glm", folder, "--out", out, "--data", data)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "evaluator report" in result.stderr
    return out


def test_csv_is_tidy_and_scales_convert_exactly(run: Path) -> None:
    tables = {
        scale: pl.read_csv(io.StringIO(output("report", run, "--format", "csv", "--scale", scale)), schema=TIDY)
        for scale in ("ratio", "published", "log10")
    }
    q = {scale: frame.filter(pl.col("measure") == "q").sort("model", "template", "group") for scale, frame in tables.items()}
    assert q["ratio"].height == 2 * 2 * 16
    for column in ("value", "low", "high"):
        log10 = q["log10"][column]
        assert (q["ratio"][column].log10() - log10).abs().max() < 1e-12  # type: ignore[operator]
        assert (q["published"][column].log() - log10).abs().max() < 1e-12  # type: ignore[operator]
    assert set(q["published"]["scale"]) == {"published"}


def test_same_seed_same_bytes(run: Path) -> None:
    first = output("report", run, "--format", "csv", "--seed", 3)
    assert output("report", run, "--format", "csv", "--seed", 3) == first
    assert output("report", run, "--format", "csv", "--seed", 4) != first


def test_intervals_and_resamples_are_chosen_at_report_time(run: Path) -> None:
    bounds = set()
    for arguments in (["percentile"], ["bca"], ["published"], ["percentile", "--resamples", 50]):
        loaded = json.loads(output("report", run, "--format", "json", "--interval", *arguments))
        bounds.add(next(row["low"] for row in loaded if row["measure"] == "g_s"))
        assert list(loaded[0]) == list(TIDY)
    assert len(bounds) == 4


@pytest.mark.parametrize("format_", ["table", "markdown", "latex", "html"])
def test_documents_name_the_stereotypes_and_the_scale(run: Path, format_: str) -> None:
    said = output("report", run, "--format", format_, "--scale", "published")
    assert "emotional" in said
    assert "published" in said
    if format_ == "table":
        assert max(map(len, said.splitlines())) <= 80
    if format_ == "html":
        assert said.startswith("<!doctype html>")


def test_warnings_go_to_stderr_beside_tidy_rows(run: Path, data: Path, tmp_path: Path) -> None:
    scores = scores_of(Run.open(run), "gest").filter(~((pl.col("template") == "3") & (pl.col("group") == "5")))
    short = Run.create_or_open(tmp_path / "short", protocol="published", provenance={})
    gest = task("gest")
    samples = gest.load(DataSource(data))
    frame = scores.filter(pl.col("model") == "one").drop("model", "task")
    short.add_imported(gest.name, task_entry(gest, samples), "one", frame, {})
    result = invoke("report", short.path, "--format", "csv")
    assert result.exit_code == 0
    assert "warning: gest: one, template 3: 4 of 64" in result.stderr
    assert "warning" not in result.stdout
    assert "template 3: 4 of 64" in output("report", short.path)


def test_scores_are_tidy_rows(run: Path) -> None:
    frame = pl.read_csv(io.StringIO(output("scores", run)), schema={**SCORES, "id": pl.String()})
    assert frame.height == 2 * 2 * 64
    assert frame.columns == ["model", "task", "language", "template", "sample", "group", "score", "id"]
    expected = scores_of(Run.open(run), "gest").select(*SCORES, id=pl.col("sample").cast(pl.String))
    assert frame.equals(expected)
    loaded = json.loads(output("scores", run, "--format", "json"))
    assert loaded[5] == expected.row(5, named=True)
    parquet = invoke("scores", run, "--format", "parquet").stdout_bytes
    assert pl.read_parquet(io.BytesIO(parquet)).equals(expected)


def test_candidates_are_a_row_a_word(tmp_path: Path) -> None:
    made = Run.create_or_open(tmp_path / "run", protocol="default", provenance={})
    samples = Samples(pl.DataFrame({"sample": [0]}), {})
    gest = task("gest")
    made.add_task(gest.name, task_entry(gest, samples))
    made.extend(models={"m": {"fingerprint": "f", "heads_used": {"gest": ["causal"]}}})
    table = {"sample": [0], "language": ["en"], "template": ["3"], "group": ["1"], "request": ["r"]}
    made.add_table("gest", ["causal"], pl.DataFrame(table))
    answer = Answer("r", ((5, 6), (7,)), ((-1.0, -0.5), (-2.0,)))
    assert answers_frame([answer]).height == 2
    made.add_answers(made.answers_folder("m"), {"continuation": answers_frame([answer])})
    lines = output("scores", tmp_path / "run", "--candidates").splitlines()
    assert lines == [
        "model,task,language,template,sample,group,candidate,role,prefix,tokens,logprob,value,id",
        'm,gest,en,3,0,1,0,male,"",5 6,-1.5,-1.5,0',
        'm,gest,en,3,0,1,1,female,"",7,-2.0,-2.0,0',
    ]


def evaluator(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evaluator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "nowhere"), "is not a run"),
        (("scores", "nowhere"), "is not a run"),
        (("report", "RUN", "--task", "gist"), "no task 'gist'"),
        (("scores", "RUN", "--task", "gist"), "no task gist"),
        (("report", "RUN", "--extra", "x"), "not KEY=VALUE"),
        (("report", "RUN", "--scale", "log2"), "log2"),
        (("import", "gest-predictions", "--kind", "mlm", "nothing.txt", "--out", "x"), "nothing.txt"),
        (("import", "gist", "x", "--out", "y"), "gist"),
    ],
)
def test_wrong_commands_end_with_one_line_and_code_2(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("EVALUATOR_DATA", str(data))
    ended = evaluator(*(run if a == "RUN" else a for a in arguments))
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def test_a_reader_that_stops_early_is_no_error(run: Path) -> None:
    command = f"{sys.executable} -m evaluator scores {run} --format json | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_help_is_quick_and_imports_no_engine() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from evaluator.cli import cli; "
        "[CliRunner().invoke(cli, [c, '--help']) for c in ('report', 'scores', 'import')]; "
        "print(sorted(m for m in ('torch', 'ray', 'vllm', 'transformers') if m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("after", "terminal"), [(0.05, True), (0.05, False), (600.0, True)])
def test_a_sign_of_life(after: float, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, of what takes longer than that; nothing is left to say when it is over."""
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output_module, "AFTER", after)
    says, before = after < 1 and terminal, threading.enumerate()
    with output_module.sign_of_life():
        deadline = time.monotonic() + (60 if says else 0.5)
        while "working" not in stream.getvalue() and time.monotonic() < deadline and after < 1:
            time.sleep(0.02)
    for timer in set(threading.enumerate()).difference(before):
        timer.join(60)
        assert not timer.is_alive()
    assert ("working" in stream.getvalue()) == says
