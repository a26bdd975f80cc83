"""`evaluator verify`: an archive's rates computed again."""

from pathlib import Path

import click

from evaluator.cli.options import LocalPath, calls


@calls("evaluator.exports.archive:verify")
@click.command(name="verify")
@click.argument("archive", metavar="ZIP", type=LocalPath(path_type=Path, dir_okay=False))
def command(archive: Path) -> None:
    """Check the files of an archive, compute its rates again and compare them; exit code 3 if something differs.

    \b
    Example:
      evaluator verify gest.zip
    """
    from evaluator.exports.archive import TOLERANCE, verify

    found = verify(archive)
    made, here = found.versions
    by = f"with version {here}" if made == here else f"with version {here}, made with {made}"
    for line in found.wrong:
        click.echo(line, err=True)
    if found.wrong:
        click.echo(f"{archive}: not reproduced ({by})", err=True)
        raise click.exceptions.Exit(3)
    click.echo(
        f"{archive}: all {found.rates:,} rates reproduced ({by}; largest difference {found.largest:.1g}, allowed {TOLERANCE:g})"
    )
