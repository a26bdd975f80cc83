"""Drawing for the HTML report: a few shapes and axes as inline SVG, coloured by the page's style sheet.

Shapes carry a class (`first`, `second`, `other`, `grid`, …) rather than colours, so that one style sheet serves light and
dark pages and print; what matters is told by shape and label as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

SHAPES = {"second": "circle", "first": "square", "template": "circle"}
"""Kind of marker (of the two poles and others) → its shape; any other kind is a diamond."""

_SMALL, _LARGE = 1e-150, 1e150
"""Nothing nearer to 0 and nothing farther from it is told apart on an axis."""

_FEW, _MANY = 3, 7
"""Fewest and most ticks of a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From values in low … high to pixels start … end, linear or logarithmic (low > 0)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; of one beyond an end, the end."""
        low, high = self._at(self.low), self._at(self.high)
        return self.start + (self._at(min(max(value, self.low), self.high)) - low) / (high - low) * (self.end - self.start)

    def _at(self, value: float) -> float:
        return math.log(value) if self.log else value

    def ticks(self) -> list[float]:
        """About five round values within the axis."""
        if self.log:
            for steps in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
                decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
                found = [s * 10.0**d for d in decades for s in steps if self.low <= s * 10.0**d <= self.high]
                if len(found) >= _FEW:
                    return found[:: math.ceil(len(found) / _MANY)]
        rough = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(rough))
        step = next(m * size for m in (1, 2, 5, 10) if m * size >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def axis_over(values: Sequence[float], start: float, end: float, *, log: bool) -> Axis:
    """An axis that holds all the values with a little room on either side."""
    low, high = (min(max(v, -_LARGE), _LARGE) if abs(v) >= _SMALL else 0.0 for v in (min(values), max(values)))
    log = log and low > 0
    if log:
        room = max((high / low) ** 0.05, 1.02)
        return Axis(low / room, high * room, start, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return Axis(low - room, high + room, start, end)


def tick_text(value: float) -> str:
    """A tick's label without superfluous digits."""
    return f"{value:.10g}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.0e}"


@dataclass(slots=True)
class Drawing:
    """An SVG picture that is written from top to bottom; `label` is what a screen reader says."""

    width: float
    height: float
    label: str
    _parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self._parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """A text whose baseline begins, is centred or ends at x, y."""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>')

    def marker(self, x: float, y: float, size: float, kind: str, title: str) -> None:
        """A point whose shape goes with the first word of `kind` (see SHAPES); `title` appears under the pointer."""
        tip = f"<title>{escape(title)}</title>"
        shape = SHAPES.get(kind.split()[0], "diamond")
        if shape == "circle":
            self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" class="{kind}">{tip}</circle>')
        elif shape == "square":
            half = size * 0.9
            self.bar(x - half, y - half, 2 * half, 2 * half, kind, title)
        else:
            s = size * 1.25
            points = f"{x:.1f},{y - s:.1f} {x + s:.1f},{y:.1f} {x:.1f},{y + s:.1f} {x - s:.1f},{y:.1f}"
            self._parts.append(f'<polygon points="{points}" class="{kind}">{tip}</polygon>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str, title: str) -> None:
        """A filled rectangle."""
        box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self._parts.append(f'<rect {box} class="{kind}"><title>{escape(title)}</title></rect>')

    def x_axis(self, axis: Axis, top: float, bottom: float, label: str = "") -> None:
        """Grid lines from top to bottom with their values below, and what is shown."""
        for tick in axis.ticks():
            self.line(axis(tick), top, axis(tick), bottom, "grid")
            self.text(axis(tick), bottom + 14, tick_text(tick), "tick", "middle")
        if label:
            self.text((axis.start + axis.end) / 2, bottom + 30, label, "axis", "middle")

    def markup(self) -> str:
        """The picture as an <svg> element."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        return f'<svg {size} role="img" aria-label={quoteattr(self.label)}>{"".join(self._parts)}</svg>'
