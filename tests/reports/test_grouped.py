"""One line for many places of one warning."""

from evaluator.reports.notes import grouped


def test_equal_warnings_are_one() -> None:
    said = [f"m{i}, template {t}: no scores of group 5" for i in range(3) for t in (1, 2)]
    assert grouped([*said, "a sentence", "m0, template 1: 3 of 9 samples have no score", "a sentence"]) == (
        "m0, template 1; m0, template 2; m1, template 1; m1, template 2 and 2 more: no scores of group 5",
        "a sentence",
        "m0, template 1: 3 of 9 samples have no score",
    )
    assert grouped([]) == ()
