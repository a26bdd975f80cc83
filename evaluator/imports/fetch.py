"""Data sets and published scores, fetched into the cache (`evaluator data fetch`)."""

from collections.abc import Iterator, Sequence

from evaluator.datasets.fetch import fetch
from evaluator.datasets.registry import PUBLIC, PUBLISHED, cache_folder, datasets, named, published_scores
from evaluator.imports.published import Step, fetch_published
from evaluator_serving.errors import InputError


def fetch_data(names: Sequence[str] = (), *, everything: bool = False, mirror: str | None = None) -> Iterator[Step]:
    """Fetch these data sets and published scores, or all data sets; yields what was done, file by file.

    `mirror`: URL that is used instead of the public source (URL/OWNER/REPOSITORY/COMMIT/PATH). Raises InputError for an unknown
    name, and NotNowError where the source can't be reached: the same call goes on from there.
    """
    if bool(names) == everything:
        raise InputError(f"name the data sets to fetch, or give --all; the names are {', '.join([*datasets(), PUBLISHED])}")
    root, base = cache_folder(), mirror or PUBLIC
    for each in named(names or list(datasets())):
        if each.name in published_scores():
            yield from fetch_published(each, base)
            continue
        if each.shipped:
            yield Step(f"{each.name}: shipped with the package, nothing to fetch")
        for file, fetched in fetch(each, root, base):
            if file.sources:
                yield Step(f"{each.name}: {root / file.local} ({'fetched' if fetched else 'already there'})")
