"""Download data sets from their public sources into the cache, and verify them."""

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

BY_HAND = "give --data DIR with a folder that contains the files"


def fetch(dataset: Dataset, root: Path, base: str = PUBLIC) -> Iterator[tuple[DataFile, bool]]:
    """Download the data set's files to `root`. Yields each file, and whether it was downloaded.

    Valid files are kept, so an interrupted download resumes. A file appears under its name only when complete and verified.
    Raises InputError if the source cannot be reached or has changed.
    """
    for file in dataset.files:
        yield file, fetch_file(dataset, file, root, base)


def fetch_file(dataset: Dataset, file: DataFile, root: Path, base: str = PUBLIC) -> bool:
    """Download one file to `root` unless it is valid. Returns whether it was downloaded. See `fetch`."""
    path = root / file.local
    needed = bool(file.sources) and check_file(dataset, file, path).status not in ("ok", "converted")
    if needed:
        _download_verified(dataset, file, path, base)
    return needed


def _download_verified(dataset: Dataset, file: DataFile, path: Path, base: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the destination's folder, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as temporary:
        raw = [download(source, Path(temporary), base) for source in file.sources]
        ready = _converted(raw, Path(temporary) / "converted.json") if file.converted else raw[0]
        result = check_file(dataset, file, ready)
        if result.status == "changed":
            raise InputError(f"{file.local}: the file converted from {file.sources[0].repository} is wrong: {result.problem}")
        with ready.open("rb") as written:
            os.fsync(written.fileno())
        ready.replace(path)


def download(source: SourceFile, folder: Path, base: str = PUBLIC) -> Path:
    """Download one public file into `folder` and verify its sha256. Transient errors are retried."""
    import pooch
    import requests

    url = base.rstrip("/") + source.url.removeprefix(PUBLIC)
    name = Path(source.path).name
    pooch.get_logger().setLevel(logging.ERROR)
    files = pooch.create(folder, base, registry={name: f"sha256:{source.sha256}"}, urls={name: url})
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(1 + RETRIES),
        wait=tenacity.wait_incrementing(1, 1),
        retry=tenacity.retry_if_exception(_is_transient),
        reraise=True,
    )
    try:
        return Path(retrying(files.fetch, name))
    except requests.HTTPError as error:
        if error.response is not None and (error.response.status_code >= 500 or error.response.status_code == 429):
            raise NotNowError(f"{error}: try again later, or {BY_HAND}") from None
        raise InputError(f"{error}: the file may have moved: {BY_HAND}") from None
    except requests.RequestException as error:
        raise NotNowError(f"can't reach {url} ({type(error).__name__}): check the network, or {BY_HAND}") from None
    except ValueError:  # pooch's error for a wrong digest, after the retries
        raise InputError(f"{url} has changed (sha256 is not {source.sha256[:12]}…), and is not used: {BY_HAND}") from None


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed: not for a file that does not exist."""
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
