"""Errors in words."""

import pytest

from evaluator_serving.errors import first_line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("short\nmore", "short"),
        ("", "ValueError"),
        ("a" * 200, "a" * 200),
        ("word " * 39 + "'HF_HUB_OFFLINE=0'", "word " * 39 + "…"),
        ("a" * 300, "a" * 198 + " …"),
    ],
)
def test_the_first_line_of_a_long_message_ends_with_a_whole_word(text: str, told: str) -> None:
    assert first_line(ValueError(text)) == told
