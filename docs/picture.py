"""Draw the picture that README.md and index.md begin with: a model's g_s among published ones (`make docs`).

    python docs/picture.py [FOLDER]

It is the overview figure of `evaluator report RUN --published`, light and dark. picture.csv has its numbers: rows of that
report's csv with the measure g_s; numbers of other models take their place when it is written anew.
"""

import sys
from pathlib import Path

import polars as pl
import vl_convert

from evaluator.reports.figures.overview import NAMED, overview
from evaluator.reports.page import VEGA_LITE
from evaluator.reports.page.palette import DARK, LIGHT, config
from evaluator.reports.report import Reference, Section
from evaluator.tasks import task
from evaluator.vocabulary import MeasureOptions, tidy

HERE = Path(__file__).parent
WIDTH = 640
WAY = "generative"


def spec() -> dict[str, object]:
    """The figure in Vega-Lite, with its numbers."""
    rows = pl.read_csv(HERE / "picture.csv", schema_overrides={"template": pl.String})
    own, others = rows.filter(pl.col("source").is_null()), rows.filter(pl.col("source").is_not_null())
    reference = tidy(others).with_columns(source=others["source"], way=pl.lit(WAY))
    layout = task("gest").layout(MeasureOptions())
    assert layout is not None
    section = Section("gest", tidy(own), layout, (), reference=Reference(dict.fromkeys(own["model"], WAY), reference))
    figure = next(overview(section))
    made = figure.spec(WIDTH)
    made["params"][0]["value"] = NAMED
    (mine,) = own["model"].unique()
    subtitle = "above 1: masculine words are likelier with male stereotypes, as the stereotypes have it; 95% intervals"
    made["title"] = {"text": f"GEST: g_s of {mine} (blue) among published models", "subtitle": subtitle, "anchor": "start"}
    return made


def draw(folder: Path) -> None:
    """Write overview-light.svg and overview-dark.svg."""
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        settings = config(colours, background=colours["paper"])
        settings["padding"] = {"left": 16, "top": 10, "right": 16, "bottom": 10}  # fonts of a reader's machine may be wider
        picture = vl_convert.vegalite_to_svg(spec(), vl_version=VEGA_LITE, config=settings)
        (folder / f"overview-{name}.svg").write_text(picture + "\n", encoding="utf8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
