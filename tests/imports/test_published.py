"""Published scores: fetched from a server on loopback with the pinned digests, imported once, the rest told."""

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from evaluator.datasets.registry import PUBLISHED, published_run, published_scores
from evaluator.imports.stereoset_predictions import kind_of
from evaluator.store.run import Run
from evaluator.tasks.stored import scores_of
from tests.commands import Command
from tests.datasets.test_fetch import Server

GLM = "/kinit-sk/gest/7dd908cae11720ee5d95e43a4ab94fb410c8b790/data/predictions/english_glm"


def content(data_dir: Path) -> dict[str, bytes]:
    """URL path → bytes of every published file that the data folder has, as it is at its source."""
    found = {}
    for part in published_scores().values():
        for file in part.files:
            (source,) = file.sources
            name = Path(source.path).name
            folders = ("gest/predictions/english_glm", "gest/predictions/english_mlm", "stereoset/predictions")
            for path in (data_dir / folder / name for folder in folders):
                if path.is_file():
                    raw = path.read_bytes()
                    if path.suffix == ".json":  # the folder has it without the source's line breaks
                        raw = json.dumps(json.loads(raw), indent=2).encode()
                    assert hashlib.sha256(raw).hexdigest() == source.sha256
                    found[f"/{source.repository}/{source.commit}/{source.path}"] = raw
    return found


@pytest.fixture
def server(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EVALUATOR_DATA", str(data_dir))
    it = Server()
    it.content.update(content(data_dir))
    yield it
    it.close()


def test_every_published_file_is_pinned(data_dir: Path) -> None:
    with (data_dir / "published_scores.tsv").open(encoding="utf8", newline="") as lines:
        public = {(f"{r['repository']}@{r['commit']}", r["path"], r["sha256"]) for r in csv.DictReader(lines, delimiter="\t")}
    sources = [source for part in published_scores().values() for file in part.files for source in file.sources]
    assert {(f"{s.repository}@{s.commit}", s.path, s.sha256) for s in sources} == public
    assert len(sources) == len(public) == 150


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt2_GPT2LM_GPT2LM_d", "causal"),
        ("gpt2_GPT2LM_GPT2LM_c", "causal, case = c"),
        ("gpt2__GPT2LM_orig", "causal, case = orig"),
        ("gpt2_GPT2LM_ModelNSP", "causal+pair"),
        ("bert-base-cased_BertLM_BertNextSentence", "masked+pair"),
        ("google_mt5-base_mT5LM_mT5LM", "seq2seq"),
        ("t5-base_T5LM_ModelNSP", "pair+seq2seq"),
        ("miguelvictor_multilingual-gpt2-large_GPT2LM_GPT2LM_case_e_power2", "causal, case = e"),
        ("miguelvictor_multilingual-gpt2-large_testtest_BertNextSentence", None),
        ("mine", None),
    ],
)
def test_a_name_says_how_a_model_was_asked(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_what_is_there_becomes_a_run_and_the_rest_is_told(server: Server, data_dir: Path, command: Command) -> None:
    altered, missing = f"{GLM}/gpt2_template-0.txt", f"{GLM}/gpt2_template-1.txt"
    right = server.content[altered]
    server.content[altered] = b"0.5\n" * 3565
    kept = server.content.pop(missing)
    parts = ("published-gest-glm", "published-gest-slavic", "published-stereoset-en")
    ended = command("data", "fetch", *parts, "--mirror", server.url)
    assert ended.code == 1
    lines = ended.err.splitlines()
    assert len(lines) == (46 - 4) + 5 + (20 - 2)  # one each
    assert all(line.startswith("evaluator: published-") and "--data" not in line for line in lines)
    assert sum("gpt2_template-0.txt has changed (sha256" in line for line in lines) == 1
    assert sum("gpt2_template-1.txt" in line and "404" in line for line in lines) == 1
    assert "published-gest-slavic: not imported as a run: the pairs" in ended.out
    checked = command("data", "check", PUBLISHED)
    status = [line.split()[-1] for line in checked.out.splitlines()[1:]]
    assert (checked.code, status.count("ok"), len(status)) == (2, 2 + 2 + 2, 150)
    run = Run.open(published_run())
    stereoset = ["bert-base-cased_BertLM_BertNextSentence", "gpt2_GPT2LM_GPT2LM_d"]
    assert run.models == ["Mistral-7B-Instruct-v0.2", "pythia-70m", *stereoset]
    assert run.protocol == "published"
    kinds = {name: entry["kinds"] for name, entry in run.record["models"].items()}
    assert kinds["pythia-70m"] == {"gest": "causal"}
    assert kinds[stereoset[0]] == {"stereoset-en": "masked+pair"}
    lines_of = (data_dir / "gest/predictions/english_glm/pythia-70m_template-1.txt").read_text().split()
    mine = scores_of(run, "gest").filter(model="pythia-70m", template="4")
    assert mine["score"].to_list() == pytest.approx([float(line) * 2.302585092994046 for line in lines_of])

    server.content |= {altered: right, missing: kept}
    server.asked.clear()
    ended = command("data", "fetch", "published-gest-glm", "--mirror", server.url)
    assert (ended.code, "published-gest-glm: 2 files imported" in ended.out) == (1, True)
    assert set(server.asked) & {f"{GLM}/pythia-70m_template-0.txt", f"{GLM}/Mistral-7B-Instruct-v0.2_template-0.txt"} == set()
    assert scores_of(Run.open(published_run()), "gest").filter(pl.col("model") == "gpt2")["template"].n_unique() == 2

    before = (published_run() / "run.json").read_bytes()
    ended = command("data", "fetch", "published-gest-glm", "--mirror", server.url)
    assert (ended.code, "imported" in ended.out) == (1, False)
    assert (published_run() / "run.json").read_bytes() == before


def test_a_killed_fetch_is_finished_by_the_same_command(server: Server, tmp_path: Path, command: Command) -> None:
    slow = f"{GLM}/pythia-70m_template-1.txt"
    whole = server.content[slow]
    assert isinstance(whole, bytes)
    reached = tmp_path / "reached"

    def wait(handler: object) -> None:
        reached.touch()
        time.sleep(20)

    server.content[slow] = wait  # type: ignore[assignment]
    words = ("data", "fetch", "published-gest-glm", "--mirror", server.url)
    child = subprocess.Popen(
        [sys.executable, "-m", "evaluator", *words], env=os.environ.copy(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not reached.exists() and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    folder = tmp_path / "cache" / "data" / PUBLISHED / "gest-glm"
    there = {path.name for path in folder.glob("*.txt")}
    assert "gpt2_template-0.txt" in there
    assert "pythia-70m_template-1.txt" not in there
    server.content[slow] = lambda handler: handler.answer(200, whole)
    server.asked.clear()
    ended = command(*words)
    assert (ended.code, "6 of 46 files" in ended.out) == (1, True)
    assert f"{GLM}/gpt2_template-0.txt" not in server.asked
    run = Run.open(tmp_path / "cache" / "data" / PUBLISHED / "run")
    assert run.models == ["Mistral-7B-Instruct-v0.2", "gpt2", "pythia-70m"]


def test_a_server_that_cannot_be_reached_stops_the_fetch_in_one_line(server: Server, command: Command) -> None:
    server.content[f"{GLM}/Llama-2-13b-hf_template-0.txt"] = lambda handler: handler.send_error(503)
    ended = command("data", "fetch", "published", "--mirror", server.url)
    assert (ended.code, len(ended.err.splitlines())) == (1, 3)
    assert "503" in ended.err.splitlines()[-1]
