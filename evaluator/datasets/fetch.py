"""Download a data set from its public source into the cache, verified before anything reads it."""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tenacity

from evaluator.datasets.check import check_file
from evaluator.datasets.registry import PUBLIC, DataFile, Dataset, SourceFile
from evaluator_serving.errors import InputError, NotNowError

RETRIES = 3

_BY_HAND = "give --data DIR with a folder that holds the files"


def fetch(dataset: Dataset, root: Path, base: str = PUBLIC) -> Iterator[tuple[DataFile, bool]]:
    """Put the data set's files under `root`; yields each with whether it had to be fetched.

    Files that are there and right stay, so that a broken-off fetch goes on where it was. A file appears under its name only
    whole and verified. Raises InputError if the source can't be reached or has changed.
    """
    for file in dataset.files:
        yield file, fetch_file(dataset, file, root, base)


def fetch_file(dataset: Dataset, file: DataFile, root: Path, base: str = PUBLIC) -> bool:
    """Put one of the data set's files under `root`; returns whether it had to be fetched. See `fetch`."""
    path = root / file.local
    wanted = bool(file.sources) and check_file(dataset, file, path).status not in ("ok", "converted")
    if wanted:
        _make(dataset, file, path, base)
    return wanted


def _make(dataset: Dataset, file: DataFile, path: Path, base: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its destination, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as temporary:
        raw = [download(source, Path(temporary), base) for source in file.sources]
        ready = _converted(raw, Path(temporary) / "converted.json") if file.converted else raw[0]
        found = check_file(dataset, file, ready)
        if found.status == "changed":
            raise InputError(f"{file.local}: the file made from {file.sources[0].repository} is wrong: {found.problem}")
        with ready.open("rb") as written:
            os.fsync(written.fileno())
        ready.replace(path)


def download(source: SourceFile, folder: Path, base: str = PUBLIC) -> Path:
    """Download one public file into `folder` and check its sha256, trying again a few times unless it isn't there."""
    import pooch
    import requests

    url = base.rstrip("/") + source.url.removeprefix(PUBLIC)
    name = Path(source.path).name
    pooch.get_logger().setLevel(logging.ERROR)
    files = pooch.create(folder, base, registry={name: f"sha256:{source.sha256}"}, urls={name: url})
    again = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(1 + RETRIES),
        wait=tenacity.wait_incrementing(1, 1),
        retry=tenacity.retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        return Path(again(files.fetch, name))
    except requests.HTTPError as error:
        if error.response is not None and (error.response.status_code >= 500 or error.response.status_code == 429):
            raise NotNowError(f"{error}: try again later, or give --data DIR with a folder that holds the files") from None
        raise InputError(f"{error}: has the file moved? Give --data DIR with a folder that holds the files") from None
    except requests.RequestException as error:
        remedy = "check the network, or give --data DIR with a folder that holds the files"
        raise NotNowError(f"can't reach {url} ({type(error).__name__}): {remedy}") from None
    except ValueError:  # pooch's complaint about the digest, after the retries
        raise InputError(f"{url} is not the file it was (sha256 is not {source.sha256[:12]}…): it is not used") from None


def _may_pass(error: BaseException) -> bool:
    """Whether a download that ended so may succeed another time: a file that isn't there won't be there in a second."""
    import requests

    answer = error.response if isinstance(error, requests.HTTPError) else None
    return isinstance(error, requests.RequestException | ValueError) and not (
        answer is not None and 400 <= answer.status_code < 500 and answer.status_code != 429
    )


def _converted(pickles: list[Path], out: Path) -> Path:
    command = [sys.executable, "-I", "-m", "evaluator.datasets.frames", *map(str, pickles), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise InputError(f"{pickles[0].name} can't be converted: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return out
