"""Every kind of task can be compared, and undefined values end in no traceback."""

import polars as pl
import pytest

from evaluator.comparison.build import Comparison
from evaluator.comparison.differences import corrected, differences
from evaluator.comparison.samples import drivers, main_rate
from evaluator.comparison.tables import tables
from evaluator.measures.bootstrap import Bootstrap
from evaluator.tasks import task
from evaluator.vocabulary import SCORES, MeasureOptions, plain_layout
from tests.reports.test_undefined import NAMES, frame, mt, scores, winobias

OPTIONS = MeasureOptions(resamples=50)


def of(frame: pl.DataFrame, model: str) -> pl.DataFrame:
    """One model's scores, typed as a run gives them."""
    return frame.filter(pl.col("model") == model).cast(SCORES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_two_models_and_a_copy(name: str) -> None:
    one = of(scores(name), "one")
    (copy,) = differences(task(name), ("one", one), [("copy", one)], OPTIONS, Bootstrap.of(OPTIONS), permutations=99)
    assert copy.rows.height
    assert copy.notes == ()
    defined = copy.rows.drop_nulls("p")
    assert defined.height
    assert set(defined["p"]) == {1.0}
    assert set(defined["difference"]) == {0.0}
    numbers = [column for column, dtype in one.schema.items() if dtype == pl.Float64()]
    turned = one.with_columns(pl.col(numbers) * -0.5) if name != "gest-mt" else one.with_columns(score=1 - pl.col("score"))
    (other,) = differences(task(name), ("one", one), [("two", turned)], OPTIONS, Bootstrap.of(OPTIONS), permutations=99)
    assert other.rows.height == copy.rows.height
    assert other.rows["difference"].abs().max() > 0  # type: ignore[operator]


def test_models_with_other_samples_are_compared_as_each_alone() -> None:
    """Of two languages; one model has a half of the samples, another one only the second language."""
    made = of(scores("gest-mt"), "one")
    one = pl.concat(made.with_columns(language=pl.lit(language)) for language in ("sk", "cs"))
    one = one.with_columns(score=pl.int_range(pl.len()) % 3 / 2)
    two = one.with_columns(score=1 - pl.col("score"))
    last = pl.col("language") == "cs"
    models = [("two", two), ("half", two.filter(pl.int_range(pl.len()) % 2 == 0)), ("last", two.filter(last)), ("same", one)]
    together = differences(task("gest-mt"), ("one", one), models, OPTIONS, Bootstrap.of(OPTIONS), permutations=99)
    for model, found in zip(models, together, strict=True):
        (alone,) = differences(task("gest-mt"), ("one", one), [model], OPTIONS, Bootstrap.of(OPTIONS), permutations=99)
        assert alone.rows.height
        assert found.rows.equals(alone.rows)
        assert found.notes == alone.notes
    assert [len(found.notes) for found in together] == [0, 1, 1, 0]


def test_what_is_missing_is_not_defined() -> None:
    """WinoBias of one gender; translations without any verdict for a stereotype, and without any at all."""
    male = frame("winobias", winobias(("male",)))
    silent = frame("gest-mt", [row | ({"score": None} if row["group"] == "5" else {}) for row in mt()])
    mute = frame("gest-mt", [row | {"score": None} for row in mt()])
    for name, made, missing in (("winobias", male, "g_hat_s"), ("gest-mt", silent, "f_s"), ("gest-mt", mute, None)):
        (found,) = differences(
            task(name), ("one", of(made, "one")), [("two", of(made, "two"))], OPTIONS, Bootstrap.of(OPTIONS), permutations=9
        )
        assert missing is None or missing not in set(found.rows["measure"])
        assert found.rows.is_empty() == (missing is None)


@pytest.mark.parametrize("name", NAMES)
def test_samples_drive_a_rate_of_every_task(name: str) -> None:
    mine = of(scores(name), "one")
    made = task(name)
    layout = made.layout(OPTIONS) or plain_layout(made.measure(mine, OPTIONS))
    rate = main_rate(layout, None, None, None)
    texts = pl.DataFrame({"sample": mine["sample"].unique(), "text": "said"})
    found = drivers(made, mine, texts, rate, OPTIONS)
    assert found.height > 0
    assert set(found["text"]) == {"said"}
    assert set(found["model"]) == {"one"}
    assert found["move"].is_sorted()


def test_brief_tables_show_the_largest_differences_of_all_languages() -> None:
    """Rows of two languages: the ten largest, whichever their language, each named with it."""
    scored = pl.concat(of(frame("gest-mt", mt()), "one").with_columns(language=pl.lit(language)) for language in ("cs", "sk"))
    other = scored.with_columns(score=pl.when(language="sk").then(1 - pl.col("score")).otherwise("score"))
    (found,) = differences(task("gest-mt"), ("one", scored), [("two", other)], OPTIONS, Bootstrap.of(OPTIONS), permutations=9)
    layout = task("gest-mt").layout(OPTIONS) or plain_layout(found.rows)
    made = Comparison(("one", "two"), OPTIONS, 9, corrected(found.rows), pl.DataFrame(), {"gest-mt": layout}, ())
    by_group = tables(made, brief=True)[1]
    labels = [row.label for row in by_group.rows if row.cells]
    assert len(labels) == 10
    assert all(label.endswith(" · sk") for label in labels)
