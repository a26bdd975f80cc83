"""A working folder in the cache that mirrors a URL.

Files are written to the storage first and to the folder second, so the folder never holds more than the storage and can be
deleted at any time. Only the holder of the lease writes (except the first run.json of a new run). Tables are derived and stay
local.
"""

import contextlib
import hashlib
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from evaluator.store.errors import StoreError
from evaluator.store.local import write_whole
from evaluator.store.names import LONGEST, folder_name
from evaluator.store.remote import lease as leases
from evaluator.store.remote.lease import Lease
from evaluator.store.remote.objects import ConflictError, Objects, UnreachedError, Version
from evaluator_serving.cache import cache_dir
from evaluator_serving.errors import InputError
from evaluator_serving.locks import TakenError, held

RECORD = "run.json"
LIVE = "progress.json"
"""What changes every second: put beside the lease's renewals, and its loss is no loss."""
ROOMS = ("logprobs", "samples", "imported", "failures", "timings")
"""Folders of a run that are mirrored."""
LAG = 30.0
"""Seconds for which a listing that lacks something is asked for again."""
_AT_ONCE = 16
"""Objects that are fetched or removed at the same time."""


class Mirror:
    """A URL and this process's working folder for it."""

    def __init__(self, url: str, folder: Path, claim: contextlib.ExitStack) -> None:
        self.url = url
        self.folder = folder
        self._claim = claim
        self._objects = Objects(url)
        self._versions: dict[str, Version] = {}
        self._mine: set[str] = set()
        self._foreign = False
        self._live: bytes | None = None
        self._answers: set[str] = set()
        self._seen = (0.0, False)
        self._lease = Lease(self._objects, lambda: len(self._answers), self._put_live)

    @classmethod
    def of(cls, url: str) -> "Mirror":
        """The URL's mirror in the first working folder that no other process on this machine uses."""
        home = cache_dir() / "runs" / hashlib.sha256(url.encode()).hexdigest()[:16]
        claim = contextlib.ExitStack()
        try:
            home.mkdir(parents=True, exist_ok=True)
            number = 0
            while True:
                try:
                    claim.enter_context(held(home / f"{number}.lock", wait=False))
                    break
                except TakenError:
                    number += 1
        except OSError as error:
            remedy = "set EVALUATOR_CACHE to a folder that can be written"
            raise InputError(f"{url} needs a working folder at {home} ({error.strerror}): {remedy}") from error
        name = PurePosixPath(url).name or "run"
        short = name if len(name.encode()) <= LONGEST else folder_name(name)  # an object's name may be as long as five files'
        return cls(url, home / str(number) / short, claim)

    def shown(self, path: Path) -> str:
        """The URL of a path in the working folder."""
        inside = path.relative_to(self.folder).as_posix()
        return self.url if inside == "." else f"{self.url}/{inside}"

    # --- reading -------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Fetch what the working folder lacks, and remove what is no longer stored."""
        record = self._objects.get(RECORD)
        if record is None:
            self._foreign = any(name != leases.NAME for name in self._objects.listing(first=True))
            shutil.rmtree(self.folder, ignore_errors=True)
            self._versions.clear()
            return
        listed = self._listed()
        deadline = time.monotonic() + LAG
        while absent := self._fetch(listed):
            if time.monotonic() > deadline:
                warnings.warn(f"{self.url}: {len(absent)} objects are listed but missing, {min(absent)} first", stacklevel=2)
                break
            time.sleep(1)
            listed = self._listed()
        self._answers = {name for name in listed if name.startswith("logprobs/")}
        for path in list(self._files()):
            if path.relative_to(self.folder).as_posix() not in listed:
                path.unlink(missing_ok=True)

    def _listed(self) -> dict[str, int]:
        """Names and sizes of the run's objects. A listing that lags behind the writer's count is requested again."""
        lease = self._objects.get(leases.NAME)
        count = leases.lease_content(lease).get("answers", 0) if lease else 0
        known = max(count if isinstance(count, int) else 0, len(self._answers))
        deadline = time.monotonic() + LAG
        while True:
            listed = {name: size for name, size in self._objects.listing().items() if _belongs(name)}
            listed |= {name: -1 for name in self._mine if name not in listed}
            missing = known - sum(name.startswith("logprobs/") for name in listed)
            if missing <= 0:
                return listed
            if time.monotonic() > deadline:
                warnings.warn(f"{self.url}: {missing} stored parts of answers are not listed", stacklevel=2)
                return listed
            time.sleep(1)

    def _fetch(self, listed: dict[str, int]) -> list[str]:
        """Fetch what the folder lacks. Returns listed objects that do not exist."""
        wanted = [name for name, size in listed.items() if not self._have(name, size)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [name for name in pool.map(self._fetched, wanted) if name]

    def _have(self, name: str, size: int) -> bool:
        """Whether a part is present: parts have unique names and never change. Other files are few and always requested."""
        if not PurePosixPath(name).name.startswith("part-"):
            return False
        try:
            return self.folder.joinpath(name).stat().st_size == size or name in self._mine
        except OSError:
            return False

    def _fetched(self, name: str) -> str | None:
        found = self._objects.get(name)
        if found is None:
            return name
        write_whole(self.folder / name, found.content)
        self._versions[name] = found.version
        return None

    def _files(self) -> Iterator[Path]:
        """The working folder's files that mirror objects."""
        yield from (path for name in (RECORD, LIVE) if (path := self.folder / name).exists())
        for room in ROOMS:
            yield from (path for path in (self.folder / room).rglob("*") if path.is_file())

    # --- writing -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def leased(self) -> Iterator[None]:
        """Hold the run for writing. Raises InputError if any process on any machine writes to it."""
        self._lease.acquire()
        try:
            self.refresh()
            self._lease.counted()
            yield
        finally:
            self._put_live()
            self._lease.release()

    @property
    def busy(self) -> bool:
        """Whether a process holds the run for writing; the result is cached for some seconds."""
        if time.monotonic() > self._seen[0]:
            alive = leases.is_alive(self._objects)
            self._seen = time.monotonic() + leases.beat_seconds(leases.lease_seconds()), alive
        return self._seen[1]

    def put(self, path: Path, content: bytes) -> None:
        """Store the content for `path` before it is written. Raises RemoteError if that fails."""
        name = path.relative_to(self.folder).as_posix()
        if name == LIVE:
            self._live = content
            return
        if not _belongs(name):
            return
        if self._lease.held:
            self._lease.check()
        elif self._foreign:
            raise InputError(f"{self.url} contains something other than a run: use another --out")
        try:
            self._versions[name] = self._objects.put(name, content, self._versions.get(name))
        except ConflictError:
            raise UnreachedError(f"{self.url} is being written by another process: wait for it or use another --out") from None
        self._mine.add(name)
        if name.startswith("logprobs/"):
            self._answers.add(name)

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove the objects of these paths."""
        names = [name for path in paths if _belongs(name := path.relative_to(self.folder).as_posix())]
        if names and self._lease.held:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(self._remove, names))

    def _remove(self, name: str) -> None:
        self._lease.check()
        self._objects.remove(name)
        self._mine.discard(name)
        self._versions.pop(name, None)

    def _put_live(self) -> None:
        content, self._live = self._live, None
        if content is not None:
            with contextlib.suppress(StoreError):
                self._objects.overwrite(LIVE, content, patience=0)


def _belongs(name: str) -> bool:
    """Whether an object belongs to the run: other objects, and names that lead out of the folder, are ignored."""
    parts = PurePosixPath(name).parts
    if name in (RECORD, LIVE):
        return True
    safe = all(part not in ("..", ".") and "\\" not in part and part.isprintable() for part in parts)
    return len(parts) > 1 and parts[0] in ROOMS and safe
