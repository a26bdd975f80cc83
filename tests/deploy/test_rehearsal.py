"""The small version of benchmarks/rehearsal.py: it raises where the job fails or its report differs."""

import importlib.util
import tempfile
from pathlib import Path

import pytest

from tests.scoring.faulty import held


@pytest.mark.slow
@pytest.mark.ray
def test_a_submitted_sweep_outlives_a_node() -> None:
    from tests.tiny_models import tiny_model

    path = Path(__file__).parents[2] / "benchmarks" / "rehearsal.py"
    spec = importlib.util.spec_from_file_location("rehearsal", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Not pytest's own folder: with xdist's part of it Ray's sockets have longer names than the system takes.
    with tempfile.TemporaryDirectory(prefix="ev") as place:
        folder = Path(place)
        model, gate = tiny_model("gpt2", folder / "gpt2"), folder / "gate"
        # So many chunks that both replicas are held with some: a machine without any could be killed and nobody miss it.
        record = module.rehearse(folder, [model], 2400, how=held(gate), release=gate, part=0.01)
    assert record["requests"] == 4800
    assert record["most_replicas"] == 2
    assert record["restarts"] >= 1
