"""The weights that this program downloaded to the Hub's cache folder, and their eviction.

A ledger in the folder lists the files that this program downloaded, and when each model was last used; other files are never
removed. A process that uses a model holds a shared lock, which ends with the process. With a budget (EVALUATOR_WEIGHTS_CACHE,
`--weights-cache`) the least recently used models are evicted until a new one fits; without one, none are. Machines that share
a cache folder share ledger, locks and budget.
"""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluator_serving.errors import EngineError, InputError, ModelError
from evaluator_serving.locks import held, is_leased, lease

BUDGET = "EVALUATOR_WEIGHTS_CACHE"
"""The environment variable with the budget, `500GB` for example."""
HOME = Path(".locks") / "evaluator"
"""In the cache folder: the hub's own tools pass over `.locks`."""
LOOK_AGAIN = 2.0
"""Seconds between looks whether a model in use has gone."""

_ALLOWED: ContextVar[int | None] = ContextVar("weights_cache", default=None)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass(frozen=True, slots=True)
class Entry:
    """This program's downloads for one model: weight file → bytes, and its last use (Unix time)."""

    files: Mapping[str, int]
    used: float

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(self.files.values())


@contextlib.contextmanager
def weights_budget(size: int | None) -> Iterator[None]:
    """Limit downloaded weights to this many bytes while the body runs (None: EVALUATOR_WEIGHTS_CACHE)."""
    token = _ALLOWED.set(size)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def parse_size(text: str) -> int:
    """Bytes of `500GB`, `1.5 TiB`, `200M`. Raises InputError for anything else, and for 0."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    size = int(float(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else 0
    if size <= 0:
        raise InputError(f"{text!r} is not a size: write for example 500GB or 1.5TB")
    return size


def readable(size: int) -> str:
    """A number of bytes with a unit that `parse_size` reads: 512B, 1.5GB."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size >= 10**power:
            return f"{size / 10**power:.1f}{unit}"
    return f"{size}B"


def key_of(name: str, commit: str) -> str:
    """The key of a model in the ledger."""
    return f"{name.replace('/', '--')}@{commit}"


@contextlib.contextmanager
def in_use(
    cache: Path, key: str, missing: Mapping[str, int], spec: str, *, keep: Collection[str] = (), wait: bool = True
) -> Iterator[None]:
    """Lock a model while the body runs, after making room for its missing weight files (name → bytes).

    Models in `keep` (keys) are not evicted either. With `wait`, waits for models in use to be released. Raises ModelError if
    the model exceeds the budget, EngineError if there is no room (without `wait`, or with nothing to wait for).
    """
    home = cache / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / "ledger.lock").open("a").close()
    except OSError:  # a cache that can only be read: nothing comes into it, and nobody evicts from it
        yield
        return
    with contextlib.ExitStack() as mine:
        while True:
            with _ledger(home) as entries:
                if _make_room(cache, entries, key, missing, spec, keep=keep, wait=wait):
                    mine.enter_context(lease(home, key))
                    _used(entries, key, missing)
                    break
            time.sleep(LOOK_AGAIN)
        try:
            yield
        finally:
            with contextlib.suppress(OSError), _ledger(home) as entries:
                _used(entries, key, {})


def remove_torn(cache: Path, repo: Path) -> None:
    """Remove partial downloads of killed processes in a model's folder, which cannot be resumed."""
    from filelock import FileLock, Timeout

    for torn in (repo / "blobs").glob("*.*.incomplete"):
        lock = FileLock(cache / ".locks" / repo.name / f"{torn.name.partition('.')[0]}.lock")
        with contextlib.suppress(Timeout, OSError), lock.acquire(timeout=0):  # else it is being downloaded now
            torn.unlink(missing_ok=True)


# --- the ledger ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _ledger(home: Path) -> Iterator[dict[str, Entry]]:
    """The ledger, locked for this process; changes are written atomically."""
    file = home / "ledger.json"
    with held(home / "ledger.lock", wait=True):
        try:
            known = json.loads(file.read_text("utf8"))
            entries = {key: Entry(entry["files"], entry["used"]) for key, entry in known.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            entries = {}  # what is in no ledger stays
        before = dict(entries)
        yield entries
        if entries != before:
            scratch = file.with_suffix(f".{os.getpid()}.tmp")
            scratch.write_text(json.dumps({key: asdict(entry) for key, entry in entries.items()}), "utf8")
            scratch.replace(file)


def _used(entries: dict[str, Entry], key: str, missing: Mapping[str, int]) -> None:
    """Record a use of a model; its missing files will have been downloaded by this program."""
    if key in entries or missing:
        known = entries[key].files if key in entries else {}
        entries[key] = Entry({**known, **missing}, time.time())


def _make_room(
    cache: Path,
    entries: dict[str, Entry],
    key: str,
    missing: Mapping[str, int],
    spec: str,
    *,
    keep: Collection[str],
    wait: bool,
) -> bool:
    """Evict until `missing` fits into budget and disk; False if models in use must be awaited."""
    known = entries[key].files if key in entries else {}
    need = sum(size for file, size in missing.items() if file not in known)
    if not need:
        return True
    budget = _ALLOWED.get() or (parse_size(os.environ[BUDGET]) if os.environ.get(BUDGET) else None)
    if budget is None:
        if need > (free := shutil.disk_usage(cache).free):
            raise EngineError(f"model {spec}: {_sizes(need, free, cache)}; free some, or set another HF_HOME")
        return True
    own = sum(known.values())
    if own + need > budget:
        what = f"its weights are {readable(own + need)}, --weights-cache allows {readable(budget)}"
        raise ModelError(f"model {spec}: {what}: raise the limit or remove the model")
    held, idle = 0, []
    for other in sorted(entries.keys() - {key}, key=lambda other: entries[other].used):
        if other in keep or is_leased(cache / HOME, other):  # under the ledger's lock, without which nobody takes one
            held += entries[other].size
        else:
            idle.append(other)
    total = held + own + sum(entries[other].size for other in idle)
    while idle and (total + need > budget or need > shutil.disk_usage(cache).free):
        other = idle.pop(0)
        if _evict(cache, other, entries[other]):
            total -= entries.pop(other).size
    free = shutil.disk_usage(cache).free
    if total + need <= budget and need <= free:
        return True
    if held and wait:
        return False
    if need > free:
        raise EngineError(f"model {spec}: {_sizes(need, free, cache)}; free some, or set another HF_HOME")
    raise EngineError(
        f"model {spec}: its weights need {readable(need)}, --weights-cache allows {readable(budget)}, "
        f"of which models in use take {readable(held + own)}"
    )


def _sizes(need: int, free: int, cache: Path) -> str:
    return f"its weights need {readable(need)}, {readable(free)} are free on the disk of {cache}"


def _evict(cache: Path, key: str, entry: Entry) -> bool:
    """Remove a model's downloaded files, except contents shared with other revisions. False if that fails."""
    from huggingface_hub import scan_cache_dir

    name, _, commit = key.rpartition("@")
    info = scan_cache_dir(cache)
    files = [
        file
        for repo in info.repos
        if repo.repo_type == "model" and repo.repo_id.replace("/", "--") == name
        for revision in repo.revisions
        if revision.commit_hash == commit
        for file in revision.files
        if file.file_name in entry.files
    ]
    info.delete_files(*files).execute()
    return not any((cache / f"models--{name}" / "snapshots" / commit / file).exists() for file in entry.files)
