"""Positions of readers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.turns.positions import Position

NUMBERS = st.integers(0, 10**18 - 1)


@given(NUMBERS, st.integers(1, 10**18 - 1), NUMBERS)
def test_a_position_within_an_event_is_read_back(number: int, length: int, epoch: int) -> None:
    position = Position(number, length, epoch)
    assert Position.parse(str(position)) == position


def test_a_position_after_an_event_is_its_number() -> None:
    assert str(Position(12)) == "12"
    assert Position.parse("12") == Position(12)


@pytest.mark.parametrize("text", ["", "-1", "1.2", "1.2.3.4", "x", "١", "1 ", "1" * 19, "1.\n2.3"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id of an event"):
        Position.parse(text)
