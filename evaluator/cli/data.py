"""`evaluator data`: list, fetch and check data sets."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from evaluator.cli.options import calls, data_option

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


@calls("evaluator.datasets.check:present")
@command.command(name="list")
@data_option
def list_(data: Path | None) -> None:
    """Print every named data set: whether it is available locally, its licence and public source."""
    from evaluator.datasets.check import present
    from evaluator.datasets.registry import folder
    from evaluator.vocabulary import DataSource

    every = list(present(data))
    rows = []
    for it, here in every:
        source = ", ".join(dict.fromkeys(source.repository for file in it.files for source in file.sources))
        rows.append((it.name, here, it.licence, source or "this package"))
    names, *lines = table(("name", "here", "licence", "source"), rows).splitlines()
    click.echo(names)
    for line, (it, _) in zip(lines, every, strict=True):
        click.echo(line)
        click.echo(textwrap.fill(it.about, WIDTH, initial_indent="    ", subsequent_indent="    "))
    click.echo(f"here: in {folder(DataSource(data))}", err=True)


@calls("evaluator.imports.fetch:fetch_data")
@command.command()
@NAMES
@click.option("--all", "everything", is_flag=True, help="Fetch every data set.")
@click.option("--mirror", metavar="URL", help="Mirror of raw.githubusercontent.com: URL/OWNER/REPOSITORY/COMMIT/PATH.")
def fetch(names: tuple[str, ...], everything: bool, mirror: str | None) -> None:
    """Download data sets from their public sources into the cache, verified by pinned sha256 digests.

    The cache is EVALUATOR_CACHE or the user's cache folder; the commands that read data sets look there unless --data or
    EVALUATOR_DATA points elsewhere. What is there already is not fetched again.

    `published` fetches the scores that the authors of GEST and of the multilingual StereoSet published, and
    imports them as a run for `--published` of `report`, `compare` and `samples`; `evaluator data list` names its parts. A file
    that cannot be downloaded is reported (exit code 1); the others are used.
    """
    from evaluator.imports.fetch import fetch_data

    missing = False
    for step in fetch_data(names, everything=everything, mirror=mirror):
        click.echo(f"evaluator: {step.text}" if step.wrong else step.text, err=step.wrong)
        missing |= step.wrong
    if missing:
        raise click.exceptions.Exit(1)


@calls("evaluator.datasets.check:check_datasets")
@command.command()
@NAMES
@data_option
def check(names: tuple[str, ...], data: Path | None) -> None:
    """Compare local files with the public ones: digests and row counts.

    Exit code 2 if a file is missing or changed, with a line for each on stderr. `converted` means that all rows are there in
    a file made from the public one, so that the digests can't be compared.
    """
    from evaluator.datasets.check import check_datasets

    findings = check_datasets(names, data)
    rows = [(f.dataset, f.path.name, "-" if f.rows is None else str(f.rows), f.status) for f in findings]
    click.echo(table(("name", "file", "rows", "status"), rows))
    wrong = [finding for finding in findings if finding.problem is not None]
    for finding in wrong:
        remedy = f"run `evaluator data fetch {finding.dataset}` or give --data DIR"
        click.echo(f"evaluator: {finding.dataset}: {finding.path}: {finding.problem}: {remedy}", err=True)
    if wrong:
        raise click.exceptions.Exit(2)
