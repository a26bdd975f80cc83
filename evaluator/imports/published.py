"""The scores that papers' authors published of their models: fetched, verified, and made one run in the cache.

The run (`evaluator.datasets.registry.published_run`) is what reports compare models with. A part of the published scores whose
samples have no pinned source (Slavic pairs), or that holds rates of whole models (WinoBias), is fetched only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.datasets.fetch import BY_HAND, fetch, fetch_file
from evaluator.datasets.registry import (
    PUBLIC,
    PUBLISHED,
    DataFile,
    Dataset,
    cache_folder,
    dataset,
    locate,
    published_run,
)
from evaluator.imports import gest_predictions, stereoset_predictions
from evaluator.imports.gest_predictions import Kind
from evaluator.store.run import Run
from evaluator.vocabulary import DataSource
from evaluator_serving.errors import InputError, NotNowError

ONLY_FETCHED = {
    "published-gest-slavic": "the pairs have no pinned source, and a model's tokenizer decides which of them count",
    "published-winobias": "it has the rates of models, not the scores of sentences",
}
"""Part → why no run is made of it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, a line; `wrong`: what could not be had."""

    text: str
    wrong: bool = False


def fetch_published(part: Dataset, base: str = PUBLIC) -> Iterator[Step]:
    """Fetch a part into the cache and import what is new in it; files that cannot be had are reported, the others are used.

    Raises NotNowError where the source can't be reached: the same command goes on from there.
    """
    there = []
    fetched = 0
    for file in part.files:
        try:
            fetched += fetch_file(part, file, cache_folder(), base)
            there.append(file)
        except NotNowError:
            raise
        except InputError as error:
            yield Step(f"{part.name}: {str(error).removesuffix(f': {BY_HAND}')}", wrong=True)  # no --data has scores
    yield Step(f"{part.name}: {len(there)} of {len(part.files)} files in {cache_folder() / PUBLISHED} ({fetched} fetched)")
    if part.name in ONLY_FETCHED:
        yield Step(f"{part.name}: not imported as a run: {ONLY_FETCHED[part.name]}")
    elif there:
        yield from _imported(part, there, base)


def _imported(part: Dataset, files: Sequence[DataFile], base: str) -> Iterator[Step]:
    """Import the files of a part that the run doesn't have yet."""
    new = [file for file in files if file.pinned not in _known()]
    if not new:
        return
    _, source, code = part.name.split("-")
    read, take = _gest("glm" if code == "glm" else "mlm") if source == "gest" else _stereoset(code)
    try:
        data = _data(source if source == "gest" else f"{source}-{code}", base)
    except NotNowError:
        raise
    except InputError as error:
        yield Step(f"{part.name}: {error}", wrong=True)
        return
    good = []
    for path in (cache_folder() / file.local for file in new):
        try:
            read(path)
            good.append(path)
        except InputError as error:
            yield Step(f"{part.name}: {error}", wrong=True)
    if good:
        yield from (Step(f"{part.name}: {note}", wrong=True) for note in take(good, data))
        yield Step(f"{part.name}: {len(good)} files imported into {published_run()}")


def _known() -> set[str]:
    """Digests of the files that the run is made of."""
    if not (published_run() / "run.json").is_file():
        return set()
    models = Run.open(published_run()).record["models"].values()
    return {str(digest) for entry in models for digest in entry.get("revision", {}).values()}


def _data(name: str, base: str) -> DataSource:
    """Where the samples of the scores are; fetched where they aren't here."""
    try:
        locate(name, DataSource())
        return DataSource()
    except InputError:
        list(fetch(dataset(name), cache_folder(), base))
        return DataSource(cache_folder())


Reader = Callable[[Path], object]
Importer = Callable[[Sequence[Path], DataSource], list[str]]


def _gest(kind: Kind) -> tuple[Reader, Importer]:
    def take(paths: Sequence[Path], data: DataSource) -> list[str]:
        gest_predictions.import_predictions(paths, kind, data, published_run())
        return []

    return lambda path: gest_predictions.read_predictions(path, kind, 3565), take


def _stereoset(language: str) -> tuple[Reader, Importer]:
    def take(paths: Sequence[Path], data: DataSource) -> list[str]:
        return stereoset_predictions.import_predictions(paths, language, data, published_run())[1]

    return lambda path: stereoset_predictions.read_predictions(path, language), take
