"""States of turns, and what makes two of them the same."""

import math
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.turns.states import (
    MAX_TIME_LIMIT,
    NEXT,
    PENDING,
    TIME_LIMIT,
    Accepted,
    NewTurn,
    TurnState,
    waits_on,
)
from lango.errors import InvalidIdError, InvalidRunAtError, InvalidTimeLimitError
from lango.testing.values import plain_json

NAMES = st.text(max_size=5).filter(lambda name: name != "files")  # which must be a list of files
OBJECTS = st.dictionaries(NAMES, plain_json(), max_size=4)


def test_every_state_says_what_may_follow() -> None:
    assert set(NEXT) == set(get_args(TurnState))
    assert all(following <= set(NEXT) for following in NEXT.values())


def test_every_state_leads_to_an_end() -> None:
    ends: set[TurnState] = {"completed", "failed", "cancelled", "input_required"}
    assert {state for state, following in NEXT.items() if not following} < ends
    for state in NEXT:
        reached: set[TurnState] = {state}
        for _ in NEXT:
            reached |= {following for old in reached for following in NEXT[old]}
        assert reached & ends


def test_only_what_has_not_begun_is_pending() -> None:
    assert all("cancelled" in NEXT[state] for state in PENDING)
    assert "running" not in PENDING


@given(OBJECTS, OBJECTS)
def test_the_order_of_keys_makes_no_other_turn(message: Any, options: Any) -> None:
    new = NewTurn(message, options).checked()
    turned = NewTurn(dict(reversed(new.input.items())), dict(reversed(new.options.items())))
    assert new.hash("app") == turned.hash("app")


@given(OBJECTS, OBJECTS)
def test_another_input_is_another_turn(message: Any, other: Any) -> None:
    new, changed = NewTurn(message).checked(), NewTurn(other).checked()
    same = new.hash("a") == changed.hash("a")
    assert same == (_canonical(new.input) == _canonical(changed.input))


def _canonical(value: Any) -> Any:
    """Told apart as JSON does: 1 is not 1.0, nor is it true."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return [_canonical(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (type(value).__name__, repr(value))


def test_what_counts_for_the_hash() -> None:
    new = NewTurn({"text": "hi"})
    later = NewTurn({"text": "hi"}, idempotency_key="k", run_at=datetime.now(UTC), time_limit=1)
    assert new.hash("app") == later.hash("app")
    others = {
        new.hash("app"),
        new.hash("other"),
        new.hash("app", "call-1"),
        NewTurn({"text": "hi"}, {"limit": 1}).hash("app"),
    }
    assert len(others) == 4


@pytest.mark.parametrize("bad", ["", "a\x00", "x" * 257])
def test_a_key_is_an_id(bad: str) -> None:
    with pytest.raises(InvalidIdError, match="idempotency key"):
        NewTurn({}, idempotency_key=bad).checked()


def test_hostile_input_is_made_storable() -> None:
    hostile: Any = {"text": "\x00\ud800", 1: {2, 1}}
    new = NewTurn(hostile, {"n": float("nan")}).checked()
    assert new.input == {"text": "\ufffd\ufffd", "1": [1, 2]}
    assert new.options == {"n": None}


@pytest.mark.parametrize(
    ("waits_for", "answered", "state"),
    [
        (["a"], [], "input_required"),
        (["a"], ["a", "b"], "answered"),
        (["a", "b"], ["b"], "input_required"),
    ],
)
def test_a_turn_waits_for_all_of_its_calls(
    waits_for: list[str], answered: list[str], state: str
) -> None:
    assert waits_on(waits_for, answered) == state


def test_accepted_tells_its_number() -> None:
    assert (Accepted(3).type, Accepted(3).data()) == ("accepted", {"number": 3})


LIMITS: list[Any] = [math.inf, -math.inf, math.nan, 0, -1.0, 1e12, 10**400, True, "60", None]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_time_limit_is_a_time_that_a_turn_can_run(limit: Any) -> None:
    with pytest.raises(InvalidTimeLimitError, match="30 days"):
        NewTurn({"text": "hi"}, time_limit=limit).checked()


EARLY, LATE = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("run_at", [datetime(2030, 1, 1), EARLY, LATE, 5.0, "soon"], ids=str)
def test_a_turn_is_scheduled_for_a_moment(run_at: Any) -> None:
    with pytest.raises(InvalidRunAtError, match="time zone"):
        NewTurn({"text": "hi"}, run_at=run_at).checked()


@pytest.mark.parametrize("limit", [0.001, 1, TIME_LIMIT, MAX_TIME_LIMIT])
def test_a_time_limit_is_kept(limit: float) -> None:
    assert NewTurn({"text": "hi"}, time_limit=limit).checked().time_limit == limit
