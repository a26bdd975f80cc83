"""What a page says and draws, read from its text."""

import io
import json
from html.parser import HTMLParser
from typing import Any

import polars as pl


class _Reader(HTMLParser):
    """Collects the text outside of scripts and styles, the figures' specifications, what is loaded from elsewhere."""

    void = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.specs: list[dict[str, Any]] = []
        self.loads: list[str] = []
        self.open: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append((tag, dict(attrs).get("class")))
        for name, value in attrs:
            if name in ("src", "href", "data", "action", "srcset") and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")
            if name == "aria-label":
                self.text.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, kind = self.open[-1] if self.open else ("", None)
        if (tag, kind) == ("script", "spec"):
            self.specs.append(json.loads(data))
        elif tag not in ("script", "style"):
            self.text.append(data)


def read(page: str) -> _Reader:
    """A page, read; every element is closed."""
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def text(page: str, *, charts: bool = True) -> str:
    """What a reader sees or hears, the figures' data and how they are drawn: without libraries and styles."""
    reader = read(page)
    shown = [json.dumps({**spec, "data": None}, ensure_ascii=False) for spec in reader.specs if charts]
    return "\n".join([*reader.text, *shown, *(spec["data"]["values"] for spec in reader.specs)])


def rows(spec: dict[str, Any]) -> pl.DataFrame:
    """A figure's data as its page holds them."""
    return pl.read_csv(io.StringIO(spec["data"]["values"]), infer_schema_length=None)


def figures(page: str) -> dict[str, tuple[dict[str, Any], pl.DataFrame]]:
    """A page's figures: text alternative → specification and data."""
    return {spec["description"]: (spec, rows(spec)) for spec in read(page).specs}


def figure(page: str, words: str) -> tuple[dict[str, Any], pl.DataFrame]:
    """The figure whose text alternative begins with these words."""
    ((spec, data),) = [found for told, found in figures(page).items() if told.startswith(words)]
    return spec, data
