"""A figure: its data as a table, and how Vega-Lite draws them. Needs no library, so that all may speak of figures."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

WIDTH = 720
"""Pixels of a figure whose page doesn't say how wide it is."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with its data.

    Attributes:
        name: of its files, without suffix; a page has it once.
        title: of what, over the picture.
        caption: how to read it, below the picture; without a picture why there is none.
        data: what is drawn, a row a mark; the csv file of the figure.
        chart: the Vega-Lite specification without its data; None where there is nothing to draw.
        told: what a screen reader says instead of the picture.
    """

    name: str
    title: str
    caption: str
    data: pl.DataFrame
    chart: Mapping[str, Any] | None
    alt: str = ""

    @property
    def csv(self) -> str:
        """The data as csv, every digit kept."""
        return self.data.write_csv()

    def spec(self, width: int | None = None) -> dict[str, Any]:
        """The specification with its data, as wide as its place in a page, or so many pixels with a title of its own.

        Raises ValueError without a chart.
        """
        if self.chart is None:
            raise ValueError(f"{self.name} has nothing to draw")
        parse = {name: kind for name, dtype in self.data.schema.items() if (kind := _kind(dtype))}
        data = {"values": self.csv, "format": {"type": "csv", "parse": parse}}
        made = {**self.chart, "data": data, "description": self.alt or self.title}
        if width is None:
            return {**made, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        chosen = [f"{choice['bind']['name'].strip()}: {choice['value']}" for choice in self.chart.get("params", [])]
        return {**made, "width": width, "title": {"text": self.title, "subtitle": chosen, "anchor": "start"}}


def _kind(dtype: pl.DataType) -> str | None:
    return "number" if dtype.is_numeric() else "boolean" if dtype == pl.Boolean() else None


def slug(*parts: str | None) -> str:
    """A file's name made of these words."""
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts if part)
