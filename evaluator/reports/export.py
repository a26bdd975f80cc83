"""Figures as files: SVG, PNG and their data, by vl-convert, without a browser."""

from collections.abc import Sequence
from pathlib import Path

from evaluator.reports.figure import WIDTH, Figure
from evaluator.reports.page import VEGA_LITE
from evaluator.reports.page.palette import LIGHT, config
from evaluator_serving.errors import InputError

PANEL = 360
"""Pixels of a figure beside others."""
SCALE = 2.0
"""Pixels of a PNG for one of the figure's."""


def svg(figure: Figure) -> str:
    """The picture, on white, with the choices that its selectors begin with."""
    import vl_convert

    settings = config(LIGHT, background="white")
    made: str = vl_convert.vegalite_to_svg(figure.spec(WIDTH), vl_version=VEGA_LITE, config=settings)
    return made


SUFFIXES = (".svg", ".png", ".pdf")


def write_picture(figures: Sequence[Figure], path: Path) -> None:
    """Write figures without choices side by side into one file; its suffix says whether SVG, PNG or PDF.

    Raises InputError for another suffix, and where it can't be written.
    """
    import vl_convert

    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: pictures are {', '.join(SUFFIXES)}: give the file one of these suffixes")
    panels = [figure.spec(PANEL) for figure in figures if figure.chart is not None]
    settings = config(LIGHT, background="white")
    picture = vl_convert.vegalite_to_svg({"hconcat": panels}, vl_version=VEGA_LITE, config=settings)
    try:
        if path.suffix.lower() == ".svg":
            path.write_text(picture, encoding="utf8")
        elif path.suffix.lower() == ".png":
            path.write_bytes(vl_convert.svg_to_png(picture, scale=SCALE))
        else:
            path.write_bytes(vl_convert.svg_to_pdf(picture))
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror}: choose another file") from None


def write_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write NAME.svg, NAME.png and NAME.csv of each figure that has something to draw; returns what was written.

    Raises InputError where the folder can't be written.
    """
    import vl_convert

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            if figure.chart is None:
                continue
            picture = svg(figure)
            pixels: bytes = vl_convert.svg_to_png(picture, scale=SCALE)
            paths = [folder / f"{figure.name}.{kind}" for kind in ("svg", "png", "csv")]
            paths[0].write_text(picture, encoding="utf8")
            paths[1].write_bytes(pixels)
            paths[2].write_text(figure.csv, encoding="utf8")
            written += paths
    except OSError as error:
        raise InputError(f"can't write figures to {folder}: {error.strerror}: choose another folder") from None
    return written
