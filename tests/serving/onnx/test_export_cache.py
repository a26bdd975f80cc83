"""The cache of exported models: what goes when there is little room, and what stays."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_models import tiny_model

from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.model_cache import cached_folder
from evaluator_serving.models.resolving import resolve
from evaluator_serving.models.source import ModelSource
from evaluator_serving.onnx import export_cache
from evaluator_serving.onnx.engine import OnnxEngine
from evaluator_serving.onnx.export_cache import cached_export, is_exported
from evaluator_serving.rows import Row

ROWS = [Row("causal", (5, 6, 7), ((2, 9),))]


def test_exports_used_longest_ago_make_room_unless_they_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    specs = [str(tiny_model("llama", tmp_path / str(seed), seed=seed)) for seed in range(4)]
    sources = [resolve(spec) for spec in specs]
    engine = OnnxEngine(sources[0], EngineOptions(device="cpu"), ROWS)
    for age, source in ((300, sources[1]), (200, sources[2])):
        used = cached_export(source, "float32", "causal") / "manifest.json"
        os.utime(used, (1e9 - age, 1e9 - age))
    cached_export(sources[1], "float32", "causal")  # used again, and so later than the other one

    def exported() -> list[bool]:
        return [is_exported(source, "float32", "causal") for source in sources]

    def room_for(exports: float) -> None:
        """The disk has room for so many exports of this size in all."""
        one, there = sources[0].parameters * 4, sum(map(export_cache._size, found()))
        free = exports * one / export_cache.SHARE - there
        monkeypatch.setattr(export_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    def found() -> list[Path]:
        return [folder for folder in (tmp_path / "cache" / "onnx").iterdir() if folder.is_dir()]

    assert exported() == [True, True, True, False]
    assert cached_folder(sources[2].revision).is_dir()
    room_for(100)
    cached_export(sources[3], "float32", "causal")
    assert exported() == [True, True, True, True]
    room_for(3.9 * export_cache._size(found()[0]) / (sources[0].parameters * 4))  # one of the four too many
    cached_export(sources[0], "int8", "causal")
    assert exported() == [True, True, False, True]
    assert not cached_folder(sources[2].revision).exists(), "what is known of it goes with its last export"
    room_for(0)
    again = cached_export(sources[2], "float32", "causal")
    assert exported() == [True, False, True, False], "the one that is loaded stays"
    assert engine.score(ROWS)[0].shape == (1,)
    engine.close()
    cached_export(remade := _other(tmp_path), "float32", "causal")
    assert exported() == [False, False, False, False]
    assert not again.exists()
    assert is_exported(remade, "float32", "causal")
    assert len(found()) == 1


def _other(folder: Path) -> ModelSource:
    return resolve(str(tiny_model("llama", folder / "other", seed=9)))
