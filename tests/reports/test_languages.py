"""Reports over languages: the table and the heat map of g_s, and which ranks are one language's own."""

import polars as pl
import pytest

from evaluator.reports.blocks import Block, blocks
from evaluator.reports.figures.languages import languages
from evaluator.reports.report import Section
from evaluator.tasks.eurogest import EuroGest, EuroGestParameters
from evaluator.vocabulary import MeasureOptions, Scale

LANGUAGES = ("cs", "da", "de", "fi")


def scores(model: str, shift: float) -> pl.DataFrame:
    """Stereotype i has the score i / 10 in every language, but 3 is the most masculine in German; Czech lacks half the rows."""
    rows = [
        (model, "eurogest", language, "G" if language == "cs" else "P", row, str(group), value + shift * (group > 7), row)
        for language in LANGUAGES
        for row in range(64)
        for group in [row % 16 + 1]
        for value in [2.0 if (language, group) == ("de", 3) else group / 10 + row / 1e4]
        if language != "cs" or row < 32
    ]
    schema = ["model", "task", "language", "template", "sample", "group", "score", "row"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def section(scale: Scale = "ratio", languages: tuple[str, ...] = LANGUAGES) -> Section:
    made = pl.concat([scores("small", 0.1), scores("large", -2.0)]).filter(pl.col("language").is_in(list(languages)))
    task = EuroGest("eurogest", EuroGestParameters(languages=languages))
    options = MeasureOptions(scale, resamples=20)
    rows = task.measure(made, options)
    return Section("eurogest", rows, task.layout(options), tuple(task.warnings(made, options)))


def titled(section: Section, words: str) -> Block:
    (found,) = [block for block in blocks(section) if words in block.title]
    return found


def test_languages_and_models_in_one_table() -> None:
    it = section()
    block = titled(it, "g_s by language")
    assert block.columns == ("language", "coverage (pairs)", "small", "large")
    assert [row.label for row in block.rows] == ["cs", "da", "de", "fi", "all"]
    assert block.rows[0].cells[0] == "1% (100%)"
    assert block.rows[1].cells[0] == "2% (0%)"
    values = {
        (lang, m): v
        for lang, m, v in it.rows.filter(measure="g_s", template="all").select("language", "model", "value").iter_rows()
    }
    assert block.rows[3].cells[1].startswith(f"{values['fi', 'small']:.3f}"[:4])
    assert any("GEST's g_s (not EuroGEST's)" in note for note in block.notes)


def test_what_is_one_languages_own_is_named() -> None:
    block = titled(section(), "rank over the languages")
    assert block.rows[0].label == "small"
    rows = {row.label: row.cells for row in block.rows[1:17]}
    assert rows["3 empathetic"][:3] == ("3.0", "3.0", "16.0")
    assert rows["3 empathetic"][4] == "de 16"
    assert rows["1 emotional"][4] == ""


def test_the_heat_map_has_a_cell_a_language_and_model() -> None:
    (figure,) = languages(section())
    data = figure.data
    assert data.height == 5 * 2
    assert data.filter(pl.col("shade") > 0)["model"].unique().to_list() == ["small"]
    assert data.filter(pl.col("shade") < 0)["model"].unique().to_list() == ["large"]
    assert data["shade"].to_list() == pytest.approx(data["value"].log().to_list())
    assert "cs 1% (100%)" in data["name"].to_list()


def test_warnings_say_what_can_be_compared() -> None:
    said = " ".join(section().warnings)
    assert "levels of q are not comparable across languages" in said
    assert "(da 0%, cs 100%)" in said
    assert "(cs 1%, fi 2%)" in said
    assert "machine-translated from English" in said
    assert section(languages=("cs",)).warnings == ()


@pytest.mark.parametrize("scale", ["eurogest", "log10"])
def test_every_scale_is_named(scale: Scale) -> None:
    it = section(scale)
    note = " ".join(titled(it, "g_s by language").notes)
    assert ("of EuroGEST's scale (not GEST's g_s)" in note) == (scale == "eurogest")
    assert set(it.rows.filter(measure="g_s")["scale"]) == {scale}
    assert any("by language and model" in figure.title for figure in languages(it))


def test_one_language_is_shown_as_gest_is() -> None:
    titles = [block.title for block in blocks(section(languages=("de",)))]
    assert "eurogest: q by group" in titles
    assert not any("by language" in title for title in titles)
