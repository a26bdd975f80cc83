"""Models whose repository brings the programs that they need: a tiny Llama under another name, and a mark of what has run."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CONFIGURATION = """
from pathlib import Path
from transformers import LlamaConfig

Path({mark!r}).mkdir(exist_ok=True)
(Path({mark!r}) / "configuration").touch()


class OwnConfig(LlamaConfig):
    model_type = "own_llama"
"""
MODELING = """
from pathlib import Path
from transformers import LlamaForCausalLM, LlamaModel
from .configuration_own import OwnConfig

(Path({mark!r}) / "modeling").touch()


class OwnModel(LlamaModel):
    config_class = OwnConfig


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""
AUTO_MAP = {
    "AutoConfig": "configuration_own.OwnConfig",
    "AutoModel": "modeling_own.OwnModel",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
}


def with_own_code(llama: Path, folder: Path, **changes: Any) -> Path:
    """A copy of a Llama of the type `own_llama`, which only the two programs in its folder know; returns `folder`.

    `changes` are made to its config.json. What is run of it leaves a file in `ran(folder)`.
    """
    shutil.copytree(llama, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own_llama", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in (("configuration_own.py", CONFIGURATION), ("modeling_own.py", MODELING)):
        (folder / name).write_text(text.format(mark=str(_mark(folder))))
    return folder


def ran(folder: Path) -> set[str]:
    """Which of a folder's programs have been run, in whatever process."""
    return {file.name for file in _mark(folder).iterdir()} if _mark(folder).is_dir() else set()


def forget(folder: Path) -> None:
    """Take the marks away."""
    shutil.rmtree(_mark(folder), ignore_errors=True)


def _mark(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-ran")


@contextmanager
def modules_in(place: Path) -> Iterator[None]:
    """transformers puts the programs that it imports there, not into the user's cache."""
    from transformers import dynamic_module_utils
    from transformers.utils import hub

    with pytest.MonkeyPatch.context() as patch:
        for module in (dynamic_module_utils, hub):
            patch.setattr(module, "HF_MODULES_CACHE", str(place))
        # The package of an earlier place would be asked for this one's modules.
        patch.syspath_prepend(str(place))
        for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
            patch.delitem(sys.modules, name)
        yield
