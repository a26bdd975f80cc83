"""The vLLM engine with the V2 model runner on a CPU: test_vllm_engine.py runs this file with TRITON_INTERPRET=1.

The CPU build has no Triton back end, so vLLM turns Triton off; a stand-in back end makes it go on, and Triton's interpreter
then runs the kernels. Rows come on stdin, the runner's name and the answers go to stdout's last line.
"""

import ast
import sys
from pathlib import Path

from transformers import AutoConfig
from triton.backends import backends

from evaluator_serving.engine import EngineOptions
from evaluator_serving.models.source import ModelSource
from evaluator_serving.rows import Row


class _Driver:
    @staticmethod
    def is_active() -> bool:
        return True


class _Backend:
    driver = _Driver
    compiler = None


backends["cpu"] = _Backend  # type: ignore[assignment]

if __name__ == "__main__":
    from evaluator_serving.vllm_engine.engine import VllmEngine

    folder = Path(sys.argv[1])
    rows = [Row("causal", ids, lookups) for ids, lookups in ast.literal_eval(sys.stdin.read())]
    source = ModelSource(str(folder), folder, "", frozenset({"causal"}), AutoConfig.from_pretrained(folder), 8192)
    engine = VllmEngine(source, EngineOptions(batch_tokens=64), rows)
    answers = [[float(x) for x in values] for values in engine.score(rows)]
    print((engine.details()["model_runner"], answers))
