"""Safe path components for names of models, tasks and parts. Pure functions."""

import hashlib
import re

from evaluator_serving.errors import InputError

_RESERVED = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""What Windows takes for a device, whatever follows the dot."""
LONGEST = 200
"""Most bytes of a name; systems allow 255, and a file's name has more around it, that of a half-written one most."""


def folder_name(name: str) -> str:
    """The name as a path component: no separator, no `..`, no Windows device name, at most LONGEST bytes."""
    safe = re.sub(r"[^\w.@=-]+", "--", name).strip("-") or "model"
    if not safe.strip(".") or _RESERVED.fullmatch(safe):
        safe = f"_{safe}"
    if len(safe.encode()) > LONGEST:
        digest = hashlib.blake2b(name.encode("utf8", "surrogatepass"), digest_size=8).hexdigest()
        safe = f"{safe.encode()[: LONGEST - 17].decode(errors='ignore')}-{digest}"
    return safe


def plain_name(name: str, run: str) -> str:
    """A file or folder name from run.json. Raises InputError if it leads outside the run."""
    if not name or name in (".", "..") or re.search(r"[/\\:\0]", name):
        raise InputError(f"{run}/run.json names {name[:100]!r}, which is not in the run: restore it or use another folder")
    return name
