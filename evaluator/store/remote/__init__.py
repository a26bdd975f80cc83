"""Runs on object storage: a URL is mirrored by a working folder in the cache.

The store uses the folder like any other. Everything is written to the URL first (`evaluator.store.files` calls `mirror_of` at
its only place of writing), so finished work is always available to other machines.
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
    """The folder of a run: a path itself, or the working folder of a URL after fetching what is stored.

    Raises InputError, with the reason and a remedy, if the URL cannot be used.
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
    """The mirror whose working folder contains this path, None for an ordinary folder."""
    return next((mirror for folder, mirror in _mirrors.items() if path.is_relative_to(folder)), None)


def refresh(path: Path) -> None:
    """Fetch changes if the path is in a working folder."""
    if mirror := mirror_of(path):
        mirror.refresh()


def shown(path: Path) -> str:
    """The path for messages: in a working folder its URL."""
    mirror = mirror_of(path)
    return mirror.shown(path) if mirror else str(path)


__all__ = ["mirror_of", "refresh", "run_folder", "shown"]
