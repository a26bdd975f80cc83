"""Colours of pages and figures, light and dark, and Vega's settings made of them.

Categories are told apart by colour-blind readers (after M. Okabe and K. Ito's palette, darkened or lightened until each has at
least three times the luminance contrast with its background); what matters is told by shape or label as well.
"""

from collections.abc import Mapping
from typing import Any

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f6f7",
    "ink": "#1d2329",
    "dim": "#56616b",
    "rule": "#d5d9dd",
    "link": "#0b5394",
    "warn": "#7a4f00",
    "warnpaper": "#fff6e0",
    "c1": "#d55e00",
    "c2": "#0072b2",
    "c3": "#5b4a8a",
    "c4": "#008a64",
    "c5": "#c25a94",
    "c6": "#a67c00",
    "c7": "#3786bd",
    "c8": "#6b6b6b",
}
DARK = {
    "paper": "#14181c",
    "panel": "#1d2328",
    "ink": "#e4e8ec",
    "dim": "#a3adb8",
    "rule": "#39424b",
    "link": "#8ec5ff",
    "warn": "#ffcf70",
    "warnpaper": "#33290f",
    "c1": "#ff8c42",
    "c2": "#5ab0f0",
    "c3": "#b9a7e6",
    "c4": "#35c99a",
    "c5": "#f09bc8",
    "c6": "#e8c14a",
    "c7": "#8fd0ff",
    "c8": "#b0b0b0",
}
VARIABLES = {name: f"var(--{name})" for name in LIGHT}
"""Colours as the page's style sheet has them: a drawn figure changes with it, and is light on paper."""
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def style_sheet(rules: str) -> str:
    """The rules with the colours in front: light, dark where the reader's screen is, light again on paper."""
    light, dark = (" ".join(f"--{name}: {value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{rules}"
    )


def config(colours: Mapping[str, str], background: str | None = None) -> dict[str, Any]:
    """Vega-Lite's settings in these colours."""
    text = {"labelColor": colours["ink"], "titleColor": colours["ink"], "titleFontWeight": "normal"}
    return {
        "background": background,
        "font": FONT,
        "padding": {"left": 4, "top": 4, "right": 12, "bottom": 4},
        "aria": False,  # the figure's own text alternative says what it shows; its table has the numbers
        "view": {"stroke": None},
        "axis": {**text, "labelFontSize": 12, "titleFontSize": 12, "titlePadding": 8}
        | {"gridColor": colours["rule"], "domainColor": colours["dim"], "tickColor": colours["dim"]},
        "legend": {
            **text,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "orient": "top",
            "symbolSize": 80,
            "labelLimit": 0,
            "gradientLength": 220,
            "labelOverlap": True,
        }
        | {"symbolBaseFillColor": colours["ink"], "symbolBaseStrokeColor": colours["ink"], "columns": 4}
        | {"layout": {"top": {"anchor": "start", "direction": "vertical"}}},
        "title": {"color": colours["ink"], "subtitleColor": colours["ink"], "fontSize": 14, "offset": 10},
        "text": {"color": colours["ink"]},
        "rule": {"color": colours["ink"]},
        "point": {"color": colours["c2"]},
        "line": {"color": colours["c2"]},
        "range": {"category": [colours[f"c{number}"] for number in range(1, 9)]},
    }
