"""Formulas of the documentation's site: LaTeX in a block called `math` becomes MathML, which browsers show by themselves."""

import re
from typing import Any

from latex2mathml.converter import convert


def fence(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """A formatter of `pymdownx.superfences`: the block's formulas, by themselves on lines of their own."""
    made = convert(source.replace("{aligned}", "{align*}"), display="block")  # it knows aligned by that name
    # Of attributes that align a cell browsers know the style alone.
    aligned = re.sub(r'columnalign="(\w+)"', r'style="text-align: \1; padding: 0.3em 0.2em"', made)
    return f'<div class="{css_class}" style="overflow-x: auto">{aligned}</div>'
