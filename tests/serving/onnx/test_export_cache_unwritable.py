"""`--engine auto` where a graph can't be kept: the transformers engine scores, and a line says why."""

from pathlib import Path

import pytest
from tiny_models import tiny_model

import evaluator


def test_auto_takes_transformers_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the cache's folder should be: not even root can write there."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "file" / "cache"))
    model = str(tiny_model("gpt2", tmp_path / "model"))
    with pytest.warns(UserWarning, match=r"its ONNX graph can't be cached in .*, so the slower transformers engine scores it"):
        run = evaluator.run("gest-demo", model, out=tmp_path / "run", limit=4)
    (entry,) = run.record["models"].values()
    assert entry["engine"] == "transformers"
    assert run.scores()["score"].null_count() == 0
