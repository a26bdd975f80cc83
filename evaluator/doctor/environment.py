"""Folders, data sets, access tokens and locale."""

import codecs
import locale
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evaluator.datasets.registry import datasets, folder, path_of
from evaluator.doctor.finding import Finding
from evaluator.sweep.hardware import GIB
from evaluator.vocabulary import DataSource
from evaluator_serving.cache import cache_dir
from evaluator_serving.errors import InputError

DISK_FULL, DISK_LOW = GIB // 2, 10 * GIB
"""Free bytes below which a folder is broken, and below which a warning is given."""
TOKENS: Mapping[str, str] = {
    "HF_TOKEN": "gated models of the hub",
    "OPENAI_API_KEY": "endpoints and LLM translators",
    "DEEPL_AUTH_KEY": "DeepL",
    "AWS_SECRET_ACCESS_KEY": "Amazon Translate and buckets",
    "GOOGLE_APPLICATION_CREDENTIALS": "Google Translate and buckets",
    "AZURE_STORAGE_ACCOUNT_KEY": "Azure's containers",
    "AZURE_STORAGE_SAS_TOKEN": "Azure's containers",
    "AZURE_STORAGE_CONNECTION_STRING": "Azure's containers",
    "RAY_AUTH_TOKEN": "a Ray cluster with token authentication",
}
"""Environment variable with a secret → its purpose. Findings say which are set, never their values."""


def findings(data: Path | None) -> Iterator[Finding]:
    """All checks of the environment; `data`: the value of `--data`."""
    folders: dict[str, Callable[[], Path]] = {
        "cache": cache_dir,
        "models": hub_cache,
        "runs": Path.cwd,
        "temporary": lambda: Path(tempfile.gettempdir()),
    }
    for name, locate in folders.items():
        try:
            yield space(name, locate())
        except (InputError, OSError) as error:  # no home folder, or a folder that was removed or cannot be written
            yield Finding("disk", name, "broken", str(error), _elsewhere(name))
    yield _data(data)
    yield _tokens()
    yield _locale(sys.stdout.encoding or "", locale.getpreferredencoding(False))


def hub_cache() -> Path:
    """huggingface_hub's cache folder, by its own rules."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface") / "hub"


def space(name: str, path: Path) -> Finding:
    """Whether a folder, or its nearest existing parent, can be written and has free space."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return Finding("disk", name, "broken", f"{path}: {existing} is not a folder", "choose another folder")
    free = shutil.disk_usage(existing).free
    text = f"{path}: {free / GIB:.1f} GiB free"
    if not os.access(existing, os.W_OK | os.X_OK):
        needed = name in ("cache", "temporary")
        return Finding("disk", name, "broken" if needed else "warning", f"{path} can't be written", _elsewhere(name))
    if free >= DISK_LOW:
        return Finding("disk", name, "ok", text)
    return Finding("disk", name, "broken" if free < DISK_FULL else "warning", text, _elsewhere(name))


def _elsewhere(name: str) -> str:
    variable = {"cache": "EVALUATOR_CACHE", "models": "HF_HOME", "temporary": "TMPDIR"}.get(name)
    return (
        f"free some space, or set {variable} to another folder" if variable else "free some space, or give --out another folder"
    )


def _data(path: Path | None) -> Finding:
    try:
        root = folder(DataSource(path))
    except InputError as error:
        return Finding("data", "", "note", str(error), "or give --data DIR; gest-demo needs no download")
    public = [dataset for dataset in datasets().values() if not dataset.shipped]
    installed = [each.name for each in public if all(path_of(each, file, root).is_file() for file in each.files)]
    text = f"{len(installed)} of {len(public)} public data sets in {root}"
    if not installed:
        remedy = "evaluator data fetch gest, or --data DIR; gest-demo needs no download"
        return Finding("data", "", "note", text, remedy)
    return Finding("data", "", "ok", f"{text}: {', '.join(installed)}")


def _tokens() -> Finding:
    tokens = [f"{name} ({purpose})" for name, purpose in TOKENS.items() if os.environ.get(name)]
    stored = Path(os.environ.get("HF_TOKEN_PATH") or hub_cache().parent / "token")
    if stored.is_file():
        tokens.append("a Hugging Face Hub token in a file")
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        tokens.append("HF_HUB_OFFLINE: nothing is downloaded from the Hub")
    if not tokens:
        return Finding("tokens", "", "note", "none", "gated models need HF_TOKEN, endpoints OPENAI_API_KEY")
    return Finding("tokens", "", "ok", ", ".join(tokens))


def _locale(terminal: str, preferred: str) -> Finding:
    text = f"terminal {terminal or '?'}, files {preferred}"
    if any(_codec(name) != "utf-8" for name in (terminal, preferred)):
        remedy = "set LC_ALL=C.UTF-8 (or PYTHONUTF8=1) to display every character; files are always written as UTF-8"
        return Finding("locale", "", "note", text, remedy)
    return Finding("locale", "", "ok", text)


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return name
