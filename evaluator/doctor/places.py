"""Folders, data sets, tokens, locale: what a run reads and writes."""

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

DISK_LEAST, DISK_LITTLE = GIB // 2, 10 * GIB
"""Bytes below which a folder counts as full, and below which it is told."""
TOKENS: Mapping[str, str] = {
    "HF_TOKEN": "gated models of the hub",
    "OPENAI_API_KEY": "endpoints and LLM translators",
    "DEEPL_AUTH_KEY": "DeepL",
    "AWS_SECRET_ACCESS_KEY": "Amazon Translate and buckets",
    "GOOGLE_APPLICATION_CREDENTIALS": "Google Translate and buckets",
    "AZURE_STORAGE_ACCOUNT_KEY": "Azure's containers",
    "AZURE_STORAGE_SAS_TOKEN": "Azure's containers",
    "AZURE_STORAGE_CONNECTION_STRING": "Azure's containers",
    "RAY_AUTH_TOKEN": "a Ray cluster that asks for it",
}
"""Secrets that are read from the environment, and for what. Whether they are there is told, never what they are."""


def findings(data: Path | None) -> Iterator[Finding]:
    """All places; `data` is what `--data` says."""
    wanted: dict[str, Callable[[], Path]] = {
        "cache": cache_dir,
        "models": hub_cache,
        "runs": Path.cwd,
        "temporary": lambda: Path(tempfile.gettempdir()),
    }
    for name, place in wanted.items():
        try:
            yield space(name, place())
        except (InputError, OSError) as error:  # no home, a folder that was removed, none that can be written
            yield Finding("disk", name, "broken", str(error), _elsewhere(name))
    yield _data(data)
    yield _tokens()
    yield _locale(sys.stdout.encoding or "", locale.getpreferredencoding(False))


def hub_cache() -> Path:
    """Where weights from the hub are kept, as huggingface_hub decides it."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface") / "hub"


def space(name: str, place: Path) -> Finding:
    """Whether a folder, or the one that it would be made in, can be written and has room."""
    there = place
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return Finding("disk", name, "broken", f"{place}: {there} is no folder", "choose another one")
    free = shutil.disk_usage(there).free
    text = f"{place}: {free / GIB:.1f} GiB free"
    if not os.access(there, os.W_OK | os.X_OK):
        needed = name in ("cache", "temporary")
        return Finding("disk", name, "broken" if needed else "warning", f"{place} can't be written", _elsewhere(name))
    if free < DISK_LEAST:
        return Finding("disk", name, "broken", text, _elsewhere(name))
    return Finding(
        "disk", name, "warning" if free < DISK_LITTLE else "ok", text, _elsewhere(name) if free < DISK_LITTLE else ""
    )


def _elsewhere(name: str) -> str:
    variable = {"cache": "EVALUATOR_CACHE", "models": "HF_HOME", "temporary": "TMPDIR"}.get(name)
    return (
        f"free some space, or set {variable} to another folder" if variable else "free some space, or give --out another folder"
    )


def _data(given: Path | None) -> Finding:
    try:
        root = folder(DataSource(given))
    except InputError as error:
        return Finding("data", "", "note", str(error), "or give --data DIR; gest-demo is shipped")
    known = [it for it in datasets().values() if not it.shipped]
    here = [it.name for it in known if all(path_of(it, file, root).is_file() for file in it.files)]
    text = f"{len(here)} of {len(known)} public data sets in {root}"
    if not here:
        remedy = "evaluator data fetch gest, or --data DIR; gest-demo is shipped"
        return Finding("data", "", "note", text, remedy)
    return Finding("data", "", "ok", f"{text}: {', '.join(here)}")


def _tokens() -> Finding:
    found = [f"{name} ({purpose})" for name, purpose in TOKENS.items() if os.environ.get(name)]
    stored = Path(os.environ.get("HF_TOKEN_PATH") or hub_cache().parent / "token")
    if stored.is_file():
        found.append("a hub token in a file")
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        found.append("HF_HUB_OFFLINE: nothing is fetched from the hub")
    if not found:
        return Finding("tokens", "", "note", "none", "gated models need HF_TOKEN, endpoints OPENAI_API_KEY")
    return Finding("tokens", "", "ok", ", ".join(found))


def _locale(terminal: str, preferred: str) -> Finding:
    text = f"terminal {terminal or '?'}, files {preferred}"
    if any(_codec(name) != "utf-8" for name in (terminal, preferred)):
        remedy = "LC_ALL=C.UTF-8 (or PYTHONUTF8=1) shows every character; results in files are UTF-8 anyway"
        return Finding("locale", "", "note", text, remedy)
    return Finding("locale", "", "ok", text)


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return name
