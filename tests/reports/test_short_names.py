"""Long names in tables of 80 columns: different ones stay different, and a legend tells them."""

from hypothesis import given
from hypothesis import strategies as st

from evaluator.reports import table
from evaluator.reports.blocks import Block, TableRow
from evaluator.reports.short_names import legend, shortened

NAMES = [
    f"an-organisation/a-model-with-a-very-long-name-and-a-size-of-{size}B-instruct-v0.{v}" for size in (7, 70) for v in (1, 2)
]


def test_four_names_that_begin_and_end_alike() -> None:
    shown = shortened(NAMES, 14)
    assert len(set(shown.values())) == 4
    assert all(len(short) <= 14 for short in shown.values())
    assert list(legend(shown)) == [f"{shown[name]} = {name}" for name in NAMES]


def test_by_hand() -> None:
    assert shortened(["bert", "abcdefghijkl", "abcdeXXXijkl"], 9) == {
        "bert": "bert",
        "abcdefghijkl": "abcd…ijkl",
        "abcdeXXXijkl": "abc…jkl#2",
    }


@given(st.lists(st.text("abcß中", min_size=1, max_size=30), max_size=30), st.integers(0, 20))
def test_no_two_names_become_one(names: list[str], room: int) -> None:
    shown = shortened(names, room)
    assert set(shown) == set(names)
    assert len(set(shown.values())) == len(set(names))
    assert all(name == short or len(short) <= max(room, 5) for name, short in shown.items())


def test_tables_fit_and_tell_every_model() -> None:
    columns = ("group", *(f"{name}\n{t}" for name in NAMES for t in ("1", "2")))
    rows = (TableRow("a-group-whose-name-is-longer-than-half-of-the-whole-table", ("1.24 1.22–1.27",) * 8),)
    lines = [line.plain for line in table.block_lines(Block("t " * 60, columns, rows), 80)]
    assert max(map(len, lines)) <= 80
    whole = "".join("".join(lines).split())
    assert all(name in whole for name in NAMES)
    heads = " ".join(line for line in lines if "…" in line and "=" not in line)
    assert len({word for word in heads.split() if word.startswith("an-")}) == 4
