"""What a run's models have in common is made once."""

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import polars as pl
import pytest
from tiny_models import tiny_model

from evaluator.scoring import encodings
from evaluator.scoring.driver import prepare
from evaluator.scoring.encodings import Asked, Encoding, Encodings, Wanted
from evaluator.scoring.spec import ModelSpec, RunSpec
from evaluator_serving import encoding
from evaluator_serving.encoding import Encoder, encoder_for
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.requests import Continuation, Request, request_id
from evaluator_serving.table import EncodedTable
from tests.own_tasks import custom


def test_models_with_one_tokenizer_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of another tokenizer or context; and every model has the rows that it has alone."""
    shapes: dict[str, tuple[int, dict[str, object]]] = {
        "first": (0, {}),
        "second": (1, {"num_hidden_layers": 1}),
        "other": (0, {"tokenizer": "llama-split"}),
        "short": (0, {"max_position_embeddings": 16}),
    }
    models = tuple(
        ModelSpec(str(tiny_model("llama", tmp_path / name, seed=seed, **shape))) for name, (seed, shape) in shapes.items()
    )
    samples = tmp_path / "own.csv"
    texts = ["I cook", "I am not weak", "I said that I am not the boss of my children"]
    samples.write_text("sentence,stereotype\n" + "".join(f"{text}.,{i + 1}\n" for i, text in enumerate(texts)))
    spec = RunSpec(models, (custom(samples),), tmp_path / "run")
    alone = {model.name: prepare(replace(spec, models=(model,))).models[0] for model in models}
    calls: Counter[tuple[str, str]] = Counter()
    plain = Encoder.encode

    def encode(self: Encoder, request: Request, name: str | None = None) -> object:
        calls[Path(self.source.spec).name, request_id(request)] += 1
        return plain(self, request, name)

    monkeypatch.setattr(Encoder, "encode", encode)
    loaded: list[str] = []
    load = encoding.tokenizer_of

    def tokenizer_of(source: ModelSource) -> object:
        loaded.append(Path(source.spec).name)
        return load(source)

    monkeypatch.setattr(encoding, "tokenizer_of", tokenizer_of)
    together = {model.name: model for model in prepare(spec).models}
    asked = len(together["first"].encoded)
    assert Counter(name for name, _ in calls) == {"first": asked, "other": asked, "short": asked}
    assert set(calls.values()) == {1}
    assert len(together["short"].refused) > 0
    assert loaded == ["first", "other", "short"], "a tokenizer is loaded where something is to be encoded"
    for name, model in together.items():
        assert (model.encoded, model.refused) == (alone[name].encoded, alone[name].refused), name


@pytest.mark.slow
def test_several_tokenizers_are_encoded_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rows and refusals of this process; a process that fails leaves its work to this one."""
    made = {
        "gpt2": tiny_model("gpt2", tmp_path / "gpt2"),
        "short": tiny_model("llama", tmp_path / "short", max_position_embeddings=16),
    }
    models = tuple(ModelSpec(str(folder), "transformers") for folder in made.values())
    samples = tmp_path / "own.csv"
    texts = ["I cook", "I am not weak", "I said that I am not the boss of my children"]
    samples.write_text("sentence,stereotype\n" + "".join(f"{text}.,{i + 1}\n" for i, text in enumerate(texts)))
    spec = RunSpec(models, (custom(samples),), tmp_path / "run")
    here = {model.name: model for model in prepare(spec).models}
    monkeypatch.setattr(encodings, "MANY", 1)
    monkeypatch.setattr(encodings, "usable_cores", lambda: 2)
    calls: list[str] = []
    plain = encodings.encode
    monkeypatch.setattr(encodings, "encode", lambda *given, **named: calls.append("here") or plain(*given, **named))
    for program, expected in ((sys.executable, 0), ("/bin/false", 2)):
        monkeypatch.setattr(encodings.sys, "executable", program)
        apart = {model.name: model for model in prepare(spec).models}
        assert len(calls) == expected
        assert len(here["short"].refused) > 0
        for name, model in apart.items():
            assert (list(model.encoded), model.refused) == (list(here[name].encoded), here[name].refused)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_heard_while_another_machine_encodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars handles the signal too, and has the kernel resume a wait without a timeout."""
    pl.LazyFrame({"a": [1]}).collect()
    monkeypatch.setattr(encodings, "MANY", 1)
    ended = Event()

    class Machine:
        count = 1

        def encode(self, _: Wanted) -> Encoding:
            ended.wait(20)
            return Encoding(EncodedTable.of([]))

        def close(self) -> None:
            ended.set()

    requests = {"r": Continuation("The man", (" said.",))}
    source, ours = resolve(str(tiny_model("gpt2", tmp_path / "gpt2"))), Encodings()
    begun = time.monotonic()
    Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), ours.ahead([Wanted(source, Asked(requests, {}))], lambda _: Machine()):
        ours.encode(source, requests, lambda: encoder_for(source), strict=False)
    assert time.monotonic() - begun < 15
