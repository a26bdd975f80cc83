"""Peak memory of the onnx engine in a process without torch, which receives token ids as in a run.

`alone` starts that process: this file, which imports only what the engine needs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluator_serving.memory import peak_memory

if TYPE_CHECKING:
    from evaluator_serving.models.source import ModelSource
    from evaluator_serving.requests import Request

MIB = 1 << 20


def alone(source: "ModelSource", requests: "Sequence[Request]", dtype: str, threads: int) -> dict[str, Any]:
    """What the process says that scores these requests, or why it `failed`."""
    from evaluator_serving.chunks import merge
    from evaluator_serving.encoding import encoder_for

    encoder = encoder_for(source)
    rows = merge([encoder.encode(request) for request in requests]).rows
    job = {"spec": source.spec, "dtype": dtype, "rows": [(row.head, row.ids, row.lookups, row.type_ids) for row in rows]}
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, __file__], input=json.dumps(job), env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1][:200]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def inside(job: Mapping[str, Any]) -> dict[str, Any]:
    """Score the rows of a job; the sizes in MiB, and over the weights'."""
    from evaluator_serving.engine import EngineOptions
    from evaluator_serving.models.resolving import resolve
    from evaluator_serving.onnx.engine import OnnxEngine
    from evaluator_serving.rows import Row

    before = peak_memory()
    rows = [Row(head, tuple(ids), tuple(map(tuple, reads)), types and tuple(types)) for head, ids, reads, types in job["rows"]]
    engine = OnnxEngine(resolve(job["spec"]), EngineOptions(device="cpu", dtype=job["dtype"]), rows)
    engine.score(rows)
    assert "torch" not in sys.modules
    weights = (engine._folder / "weights.bin").stat().st_size
    return {
        "peak_mib": peak_memory() // MIB,
        "before_mib": before // MIB,
        "weights_mib": weights // MIB,
        "times_the_weights": round(peak_memory() / weights, 2),
        "engine_times_the_weights": round((peak_memory() - before) / weights, 2),
    }


if __name__ == "__main__":
    print(json.dumps(inside(json.loads(sys.stdin.read()))))
