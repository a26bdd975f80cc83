"""Runs on object storage: a URL stands for a working folder in the cache that mirrors it.

The store reads and writes that folder as any other. Whatever it writes is first put to the URL (`evaluator.store.files` asks
`mirror_of` at its one point of writing), so that nothing counts as done which another machine couldn't go on from.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.store.remote.clouds import check_no_url, checked_url

if TYPE_CHECKING:
    from evaluator.store.remote.mirror import Mirror

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.:-]+):/{1,2}(.*)$", re.DOTALL)
"""A scheme has two letters at least: one is a drive. A URL that was made a Path has only one slash left. Chains of schemes
(`simplecache::s3://…`) are no folders either."""
_mirrors: "dict[Path, Mirror]" = {}


def run_folder(where: str | Path) -> Path:
    """The folder of a run: a path as it is; of a URL the working folder, which holds now what is stored there.

    Raises InputError where the URL can't be used, saying why and what to do.
    """
    text = str(where)
    if isinstance(where, Path) and where.exists():
        return where
    if not (found := _URL.match(text)):
        check_no_url(text)
        return Path(where)
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file":
        return Path("/" + rest.lstrip("/"))
    from evaluator.store.remote.mirror import Mirror

    url = checked_url(scheme, rest)
    mirror = next((each for each in _mirrors.values() if each.url == url), None)
    if mirror is None:
        mirror = Mirror.of(url)
        _mirrors[mirror.folder] = mirror
    mirror.refresh()
    return mirror.folder


def mirror_of(path: Path) -> "Mirror | None":
    """What mirrors the working folder that this path is in, None for a path of an ordinary folder."""
    return next((mirror for folder, mirror in _mirrors.items() if path.is_relative_to(folder)), None)


def refresh(path: Path) -> None:
    """Fetch what has changed, if the path is of a working folder."""
    if mirror := mirror_of(path):
        mirror.refresh()


def shown(path: Path) -> str:
    """What people call this path: in a working folder its URL."""
    mirror = mirror_of(path)
    return mirror.shown(path) if mirror else str(path)


__all__ = ["mirror_of", "refresh", "run_folder", "shown"]
