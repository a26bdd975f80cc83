"""Which samples a limit takes: as many as asked, from as many groups as there are, the small limit's among the large one's."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.store.sample_counts import merge_counts
from evaluator.tasks import TASKS, task
from evaluator.tasks.limit import spread
from evaluator.vocabulary import ORDER, DataSource
from evaluator_serving.errors import InputError
from tests.own_tasks import custom

ROWS = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([None, "1", "2", "3", "4"])), min_size=1, max_size=60)


@given(ROWS, st.integers(1, 70), st.integers(1, 70), st.integers(0, 3))
def test_limits_are_nested_exact_and_spread(rows: list[tuple[str, str | None]], one: int, other: int, seed: int) -> None:
    frame = pl.DataFrame(rows, schema={"outer": pl.String, "inner": pl.String}, orient="row")
    small, large = (spread(frame, ["outer", "inner"], n, seed) for n in sorted((one, other)))
    assert large[: len(small)] == small
    assert len(small) == len(set(small)) == min(len(rows), one, other)
    sizes, taken = Counter(rows), Counter(rows[i] for i in small)
    assert len(taken) == min(len(small), len(sizes))
    open_ = [taken[group] for group in sizes if taken[group] < sizes[group]]
    assert not open_ or max(taken.values()) <= min(open_) + 1, "no group is far ahead of one that has samples left"


def test_the_outer_groups_alternate() -> None:
    frame = pl.DataFrame({"outer": ["a"] * 90 + ["b"] * 10, "inner": [str(i % 9) for i in range(90)] + ["0", "1"] * 5})
    outer = [frame["outer"][i] for i in spread(frame, ["outer", "inner"], 4)]
    assert sorted(outer) == ["a", "a", "b", "b"]


def test_seeds_draw_differently_and_without_strata_all_samples_are_one_group() -> None:
    frame = pl.DataFrame({"sample": range(100)})
    orders = [spread(frame, (), None, seed) for seed in range(3)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order[:10]) for order in orders}) == 3
    means = [sum(spread(frame, (), 10, seed)) / 10 for seed in range(200)]
    assert sum(means) / 200 == pytest.approx(49.5, abs=2.5), "every place is as likely: standard error of the mean 0.6"


def test_the_order_never_changes() -> None:
    """A run is extended by later versions: another order would mix samples of two draws."""
    frame = task("gest-demo").load_limited(DataSource(), 8).frame.sort(ORDER)
    assert frame["sample"].to_list() == [23, 149, 64, 116, 1, 126, 35, 104]
    assert frame["group"].n_unique() == 8
    assert Counter(frame["polarity"]) == {"male": 4, "female": 4}


SLOW = ("gest-mt", "gest-slavic", "stereoset-race-control", "stereoset-profession-control")


@pytest.mark.parametrize("name", [*(name for name in TASKS if name not in SLOW), "stereoset-en"])
def test_every_task_is_cut_to_its_limit(data_dir: Path, name: str) -> None:
    made, data = task(name), DataSource(data_dir)
    samples = made.load_limited(data, 12)
    whole = made.load(data)
    assert samples.frame.height == 12
    assert samples.size == whole.size == whole.frame.height
    assert samples.sha256 == whole.sha256
    cut = whole.frame.filter(pl.col("sample").is_in(samples.frame["sample"].implode()))
    assert samples.frame.drop(ORDER).equals(cut), "rows as they are, in the data set's order"
    strata = getattr(made, "strata", ())
    if strata:
        groups = whole.frame.select(strata).unique().height
        assert samples.frame.select(strata).unique().height == min(12, groups)


CSV = b'\xef\xbb\xbfstereotype,x,sentence\r\n16,,"I said ""no"",\r\ntwice."\r\n\r\n' + b"".join(
    f"{i % 16 + 1},,I am number {i}.\r\n\r\n".encode() for i in range(200)
)


def test_a_users_file_is_read_for_the_limits_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(CSV)
    own = custom(path)
    whole = own.load(DataSource())
    assert whole.frame.height == 201
    for limit in (1, 20, 201, 1000):
        part = own.load_limited(DataSource(), limit)
        order = spread(whole.frame, ("polarity", "group"), limit)
        assert part.frame.height == min(limit, 201)
        assert part.frame.sort(ORDER)["sample"].to_list() == order
        assert part.frame.drop(ORDER).equals(whole.frame[sorted(order)])
        assert (part.size, part.sha256) == (201, whole.sha256)


def test_what_is_wrong_behind_the_limits_rows_is_found(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(CSV + b"17,,A\r\n")
    with pytest.raises(InputError, match=r"line 405: stereotype '17' is not one of 1 to 16"):
        custom(path).load_limited(DataSource(), 1)
    path.write_bytes(CSV + b"1,,caf\xe9\r\n")
    with pytest.raises(InputError, match="line 405: not UTF-8"):
        custom(path).load_limited(DataSource(), 1)


def asked(limit: int | None) -> dict[str, object]:
    return {"limit": limit, "seed": 0, "samples": limit or 100}


@pytest.mark.parametrize(
    ("before", "now", "then"),
    [(8, 20, 20), (8, None, None), (20, 8, 20), (None, 8, None), (8, 8, 8)],
)
def test_what_was_asked_only_grows(before: int | None, now: int | None, then: int | None) -> None:
    known = {"heads_used": {"gest": ["causal"]}, "asked": {"gest": asked(before)}}
    assert merge_counts(known, {"gest": asked(now)}) == {"gest": asked(then)}


def test_a_model_of_an_older_version_keeps_all_that_it_has_answered() -> None:
    known = {"heads_used": {"gest": ["causal"]}}
    assert merge_counts(known, {"gest": asked(8), "winobias": asked(8)}) == {"winobias": asked(8)}
    assert merge_counts(known, {"gest": asked(None)}) == {"gest": asked(None)}
