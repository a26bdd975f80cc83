"""A page: one HTML file that needs nothing else, with figures that are drawn as they come into sight and tables that sort.

Everything is inside: styles, the page's own script, Vega with Vega-Lite and Vega-Embed (from vl-convert-python), and DataTables
(`vendor/`, MIT). Reports, comparisons and lists of samples are pages of parts.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evaluator.reports.blocks import Block
from evaluator.reports.figure import Figure
from evaluator.reports.page.palette import LIGHT, VARIABLES, config, style_sheet
from evaluator.reports.page.tables import Flat, flat
from evaluator_serving.cache import cache_dir, remember_json, remembered_json
from evaluator_serving.errors import InputError

VEGA_LITE = "6.4"
"""Version of Vega-Lite that Altair writes and vl-convert knows."""
OFFENSIVE = (
    "This page measures stereotypes. Its group names and sentences describe people in ways that can offend. They "
    "are test data, not statements of fact or opinion."
)
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page with a heading of its own.

    Attributes:
        title: its heading.
        about: what was measured, a line.
        lead: the main result in sentences, beside the first figure.
        cautions: what must not be concluded.
        warnings: what to beware of in these numbers.
        figures: the main one first.
        tables: the first one is open.
        empty: what is said where there is neither figure nor table.
    """

    title: str
    about: str = ""
    lead: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Block, ...] = ()
    empty: str = "No scores yet."

    @property
    def flat(self) -> tuple[Flat, ...]:
        """Its tables with one header line and no headings among the rows: what sorts and filters."""
        return tuple(flat(block) for block in self.tables if block.rows)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, the choices it was made with, what every reader must know, its parts, and further notes by kind."""

    title: str
    choices: tuple[str, ...]
    notes: tuple[str, ...]
    parts: tuple[Part, ...]
    details: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offensive: str = OFFENSIVE


def check_libraries(wanted: str = "--format html") -> None:
    """Raise InputError where a library that draws or writes pages isn't installed; `wanted` needs it."""
    for name, called in (("altair", "Vega-Altair"), ("vl_convert", "vl-convert-python"), ("jinja2", "Jinja2")):
        try:
            __import__(name)
        except ImportError:
            remedy = "pip install 'stereotype-evaluator[report]'"
            raise InputError(f"{wanted} needs {called}, which isn't installed: {remedy}") from None


def render_page(page: Page) -> str:
    """The file's text. Raises InputError without the libraries that it needs."""
    check_libraries()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_FOLDER / "page.html").read_text(encoding="utf8"))
    drawn = any(figure.chart is not None for part in page.parts for figure in part.figures)
    text: str = template.render(
        page=page,
        style=Markup(page_style()),
        libraries=[Markup(inline(source)) for source in ([vega()] if drawn else []) + [datatables()]],
        script=Markup(inline((_FOLDER / "page.js").read_text(encoding="utf8"))),
        configs=Markup(as_script({"screen": config(VARIABLES), "paper": config(LIGHT, background="white")})),
        spec=lambda figure: Markup(as_script(figure.spec())),
    )
    return text


def as_script(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """A value as JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def page_style() -> str:
    """The pages' style sheet, with their colours."""
    return style_sheet((_FOLDER / "page.css").read_text(encoding="utf8"))


def inline(source: str) -> str:
    """A script's text that doesn't end the element it stands in."""
    return re.sub(r"</(?=script)", r"<\\/", source, flags=re.IGNORECASE)


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which defines `vegaEmbed`; remembered, as bundling them takes seconds."""
    import vl_convert

    store = cache_dir() / f"vega-{VEGA_LITE}-{version('vl-convert-python')}.json"
    if isinstance(kept := remembered_json(store).get("script"), str):
        return kept
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    remember_json(store, {"script": bundle})
    return bundle


def datatables() -> str:
    """DataTables' script."""
    (path,) = (_FOLDER / "vendor").glob("datatables-*.min.js")
    return path.read_text(encoding="utf8")
