"""`evaluator data`: list, fetch and check data sets."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from evaluator.cli.options import data_option

WIDTH = 80
NAMES = click.argument("names", nargs=-1, metavar="[NAME…]")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows))
    return "\n".join(line.rstrip() for line in lines)


@click.group(name="data")
def command() -> None:
    """List, fetch and check data sets.

    The public sentences contain stereotypes on purpose and can offend.

    \b
    Examples:
      evaluator data list
      evaluator data fetch gest stereoset-en
      evaluator data fetch published
      evaluator data check --data DIR
    """


@command.command(name="list")
@data_option
def list_(data: Path | None) -> None:
    """Print every named data set: whether it is here, its licence and public source."""
    from evaluator.datasets.registry import cache_folder, datasets, folder, path_of, published_scores
    from evaluator.vocabulary import DataSource

    root = folder(DataSource(data))
    every = {**datasets(), **published_scores()}
    rows = []
    for it in every.values():
        place = cache_folder() if it.name in published_scores() else root
        there = [path_of(it, file, place).is_file() for file in it.files]
        here = "shipped" if it.shipped else "yes" if all(there) else "some" if any(there) else "no"
        source = ", ".join(dict.fromkeys(source.repository for file in it.files for source in file.sources))
        rows.append((it.name, here, it.licence, source or "this package"))
    names, *lines = table(("name", "here", "licence", "source"), rows).splitlines()
    click.echo(names)
    for line, it in zip(lines, every.values(), strict=True):
        click.echo(line)
        click.echo(textwrap.fill(it.about, WIDTH, initial_indent="    ", subsequent_indent="    "))
    click.echo(f"here: in {root}", err=True)


@command.command()
@NAMES
@click.option("--all", "everything", is_flag=True, help="Fetch every data set.")
@click.option("--mirror", metavar="URL", help="Instead of raw.githubusercontent.com: URL/OWNER/REPOSITORY/COMMIT/PATH.")
def fetch(names: tuple[str, ...], everything: bool, mirror: str | None) -> None:
    """Download data sets from their public sources into the cache, verified by pinned sha256 digests.

    The cache is EVALUATOR_CACHE or the user's cache folder; the commands that read data sets look there unless --data or
    EVALUATOR_DATA points elsewhere. What is there already is not fetched again.

    `published` fetches the scores that the authors of GEST and of the multilingual StereoSet published of their models, and
    makes a run of them for `--published` of `report`, `compare` and `samples`; `evaluator data list` names its parts. A file
    of scores that cannot be had is reported (exit code 1), the others are used.
    """
    from evaluator.datasets.fetch import fetch as fetch_files
    from evaluator.datasets.registry import PUBLIC, PUBLISHED, cache_folder, dataset, datasets, published_scores
    from evaluator_serving.errors import InputError

    if bool(names) == everything:
        raise InputError(f"name the data sets to fetch, or give --all; the names are {', '.join([*datasets(), PUBLISHED])}")
    root = cache_folder()
    scores = [name for name in names if name == PUBLISHED or name in published_scores()]
    for it in [dataset(name) for name in names or datasets() if name not in scores]:
        if it.shipped:
            click.echo(f"{it.name}: shipped with the package, nothing to fetch")
        for file, fetched in fetch_files(it, root, mirror or PUBLIC):
            if file.sources:
                click.echo(f"{it.name}: {root / file.local} ({'fetched' if fetched else 'already there'})")
    from evaluator.imports.published import fetch_published

    missing = False
    for step in fetch_published(scores, mirror or PUBLIC):
        click.echo(f"evaluator: {step.text}" if step.wrong else step.text, err=step.wrong)
        missing |= step.wrong
    if missing:
        raise click.exceptions.Exit(1)


@command.command()
@NAMES
@data_option
def check(names: tuple[str, ...], data: Path | None) -> None:
    """Compare the files that are here with the public ones: digests and row counts.

    Exit code 2 if a file is missing or changed, with a line for each on stderr. `converted` means that all rows are there in
    a file made from the public one, so that the digests can't be compared.
    """
    from evaluator.datasets.check import check as check_dataset
    from evaluator.datasets.registry import cache_folder, dataset, datasets, folder, published_scores
    from evaluator.vocabulary import DataSource

    root = folder(DataSource(data))
    places = {name: cache_folder() if name in published_scores() else root for name in names or datasets()}
    findings = [finding for name, place in places.items() for finding in check_dataset(dataset(name), place)]
    rows = [(f.dataset, f.path.name, "-" if f.rows is None else str(f.rows), f.status) for f in findings]
    click.echo(table(("name", "file", "rows", "status"), rows))
    wrong = [finding for finding in findings if finding.problem is not None]
    for finding in wrong:
        remedy = f"run `evaluator data fetch {finding.dataset}` or give --data DIR"
        click.echo(f"evaluator: {finding.dataset}: {finding.path}: {finding.problem}: {remedy}", err=True)
    if wrong:
        raise click.exceptions.Exit(2)
