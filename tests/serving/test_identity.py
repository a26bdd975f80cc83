"""What answers are known by: weights by their content, options that can move a number, and nothing else."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator_serving import cache
from evaluator_serving import identity as identities
from evaluator_serving.engine import EngineOptions
from evaluator_serving.identity import fingerprint, identity
from evaluator_serving.models.source import ModelSource

SOURCE = ModelSource("m", Path("."), "sha256:00", frozenset({"causal"}), SimpleNamespace(model_type="gpt2"), 8)
EVERYTHING = EngineOptions("bfloat16", "cpu", 9, 2, quantization="fp8")


@pytest.fixture
def _frozen_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "installed", lambda names: {"torch": "1.2.3"})


def print_of(engine: str, options: EngineOptions = EngineOptions(), **extra: Any) -> str:  # noqa: B008
    return fingerprint(identity(engine, SOURCE, replace(options, extra=extra)))


# --- options ---


@pytest.mark.usefixtures("_frozen_versions")
@pytest.mark.parametrize(
    ("engine", "plain", "everything"),
    [
        ("transformers", "b25922e8def1", "da87895d5d21"),
        ("onnx", "3c3e3dadd29c", "eb54c10ca3d9"),
        ("vllm", "1b126dbb94ee", "41ec596a39d4"),
        ("openai", "76f686e952c9", "70a7820484c3"),
    ],
)
def test_runs_without_extra_options_keep_their_fingerprint(engine: str, plain: str, everything: str) -> None:
    """Values of the program before extra options counted: such runs go on, they don't begin anew."""
    assert (print_of(engine), print_of(engine, EVERYTHING)) == (plain, everything)


@pytest.mark.parametrize(("kind", "name"), [("deepseek_v32", "index_topk"), ("llama4_text", "floor_scale")])
def test_answers_of_models_whose_numbers_were_wrong_are_kept_apart(kind: str, name: str) -> None:
    source = replace(SOURCE, config=SimpleNamespace(model_type=kind, **{name: 64}))
    assert identity("transformers", source, EngineOptions()).details[name] == 64
    assert name not in identity("vllm", source, EngineOptions()).details


@pytest.mark.usefixtures("_frozen_versions")
def test_an_openai_run_keeps_its_fingerprint() -> None:
    assert print_of("openai", url="http://h/v1", served_model="x", concurrency="3") == "986adc82e054"


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("vllm", "kv_cache_dtype", "fp8"),
        ("vllm", "hf_overrides", {"rope_theta": 1}),
        ("vllm", "load_format", "dummy"),
        ("vllm", "max_model_len", 9999),
        ("onnx", "tensorrt", "true"),
        ("openai", "served_model", "b"),
        ("tests.scoring.faulty:Faulty", "fault", 1),
    ],
)
def test_an_option_that_is_not_known_to_be_harmless_counts(engine: str, name: str, value: Any) -> None:
    assert print_of(engine, **{name: value}) != print_of(engine)
    assert print_of(engine, **{name: value}) != print_of(engine, **{name: 2})


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *(("vllm", name) for name in ("max_num_seqs", "gpu_memory_utilization", "distributed_executor_backend", "hf_token")),
        *(("onnx", name) for name in ("intra_op_threads", "graph")),
        *(("openai", name) for name in ("concurrency", "retries", "timeout")),
    ],
)
def test_harmless_options_may_change_between_attempts(engine: str, name: str) -> None:
    assert print_of(engine, **{name: 8}) == print_of(engine)


def test_a_value_is_one_on_the_command_line_and_in_a_sweep_file() -> None:
    assert print_of("vllm", enforce_eager="false") == print_of("vllm", enforce_eager=False)


def test_an_option_that_names_a_folder_counts_by_what_is_in_it(tmp_path: Path) -> None:
    prints = []
    for folder, content in (("a", "1"), ("b", "1"), ("b", "2")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "weights.bin").write_text(content)
        prints.append(print_of("onnx", folder=str(tmp_path / folder)))
    assert prints[0] == prints[1] != prints[2]


# --- weights ---


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A large file whose digest is remembered at once."""
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_SETTLED_NS", -1)
    file = tmp_path / "model.safetensors"
    put(file, b"a")
    return file


def put(file: Path, byte: bytes) -> None:
    """Write the file in place, with times as reproducible container layers have them."""
    with file.open("r+b" if file.exists() else "wb") as handle:
        handle.write(byte * 1_500_000)
    os.utime(file, (0, 0))


def test_weights_replaced_with_equal_size_and_time_are_noticed(weights: Path) -> None:
    before = cache.content_hash([weights])
    stat = weights.stat()
    put(weights, b"b")
    after = weights.stat()
    assert (stat.st_ino, stat.st_size, stat.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)
    assert cache.content_hash([weights]) != before


def test_one_changed_byte_is_noticed_by_the_time_of_change(weights: Path) -> None:
    before = cache.content_hash([weights])
    with weights.open("r+b") as handle:
        handle.seek(700_001)
        handle.write(b"b")
    os.utime(weights, (0, 0))
    assert cache.content_hash([weights]) != before


@pytest.mark.parametrize("at", [0, -1])
def test_first_and_last_bytes_count_where_a_file_system_keeps_no_times(
    weights: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = weights.stat()
    monkeypatch.setattr(Path, "stat", lambda self, **_: frozen)
    before = cache.content_hash([weights])
    content = bytearray(weights.read_bytes())
    content[at] = ord("b")
    weights.write_bytes(content)
    assert cache.content_hash([weights]) != before


def test_digests_remembered_by_an_older_version_are_not_trusted(weights: Path) -> None:
    stat = weights.stat()
    (weights.parent / "cache").mkdir()
    old = {str(weights.resolve()): [stat.st_size, stat.st_mtime_ns, "0" * 64]}
    (weights.parent / "cache" / "digests.json").write_text(json.dumps(old))
    asked = cache.content_hash([weights])
    (weights.parent / "cache" / "digests.json").unlink()
    assert cache.content_hash([weights]) == asked


def test_a_file_that_has_just_changed_is_hashed_again(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SETTLED_NS", 2_000_000_000)
    cache.content_hash([weights])
    assert not (weights.parent / "cache").exists()
