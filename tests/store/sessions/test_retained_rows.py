"""Rows of unanswered calls that a load must bring along."""

import pytest

from lango.errors import TurnLimitError
from lango.store.sessions.entries import Entry
from lango.store.sessions.retained_rows import (
    MAX_CLOSED,
    MAX_OPEN,
    Calls,
    RetainedCalls,
    after_append,
    before_rewind,
    check_room,
    spans,
)
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import created, key, said


def call(
    *,
    invocation: str | None = "turn-1",
    first: int = 3,
    last: int = 4,
    answered: int | None = None,
) -> dict[str, object]:
    return {"invocation": invocation, "from": first, "to": last, "answered": answered}


def entry(invocation: str = "turn-1", opens: str = "", answers: str = "", scope: str = "") -> Entry:
    return said(
        "e",
        invocation_id=invocation,
        opens_calls=tuple(opens.split()),
        answers_calls=tuple(answers.split()),
        responses=tuple(answers.split()),
        scope=scope,
    )


def append(
    open_calls: Calls | None, new: Entry, *, seq: int = 9, turn_seq: int = 7, new_turn: bool
) -> Calls | None:
    calls = RetainedCalls(open_calls, None)
    return after_append(calls, new, seq=seq, turn_seq=turn_seq, new_turn=new_turn).open


@pytest.mark.parametrize("new_turn", [True, False])
def test_without_calls_there_is_nothing_to_keep(new_turn: bool) -> None:
    assert append(None, entry(), new_turn=new_turn) is None
    assert append({}, entry(), new_turn=new_turn) is None


def test_an_opened_call_keeps_its_turn_from_the_beginning() -> None:
    opened = append(None, entry(opens="a b"), seq=9, turn_seq=7, new_turn=False)
    assert opened == {"a": call(first=7, last=9), "b": call(first=7, last=9)}


def test_further_rows_of_its_turn_are_kept_too() -> None:
    assert append({"a": call()}, entry(), new_turn=False) == {"a": call(last=9)}


def test_rows_of_other_turns_are_not() -> None:
    assert append({"a": call()}, entry("turn-2"), new_turn=True) == {"a": call()}


def test_an_answer_marks_its_call_alone() -> None:
    calls: Calls = {"a": call(), "b": call()}
    answered = append(calls, entry("turn-2", answers="a"), new_turn=True)
    assert answered == {"a": call(answered=9), "b": call()}


def test_an_answer_under_the_calls_own_invocation_extends_its_rows() -> None:
    answered = append({"a": call()}, entry("turn-1", answers="a"), new_turn=True)
    assert answered == {"a": call(last=9, answered=9)}


def test_an_answered_call_stays_while_the_turn_that_answers_it_goes_on() -> None:
    calls: Calls = {"a": call(answered=9)}
    assert append(calls, entry("turn-2"), new_turn=False) == calls


def test_and_goes_with_the_next_turn() -> None:
    calls: Calls = {"a": call(answered=9), "b": call()}
    assert append(calls, entry("turn-3"), new_turn=True) == {"b": call()}
    assert append({"a": call(answered=9)}, entry("turn-3"), new_turn=True) is None


def test_answers_to_unknown_calls_change_nothing() -> None:
    assert append(None, entry(answers="x"), new_turn=False) is None


def test_a_call_opened_again_is_open_again() -> None:
    calls: Calls = {"a": call(answered=9)}
    again = append(calls, entry("turn-2", opens="a"), seq=9, turn_seq=9, new_turn=False)
    assert again == {"a": call(invocation="turn-2", first=9, last=9)}


def test_no_open_call_is_dropped_however_many_there_are() -> None:
    calls: Calls | None = None
    for number in range(MAX_CLOSED + 10):
        new = entry(f"turn-{number}", opens=f"call-{number}")
        calls = append(calls, new, seq=number, turn_seq=number, new_turn=True)
    assert list(calls or {}) == [f"call-{number}" for number in range(MAX_CLOSED + 10)]


def test_the_newest_closed_calls_are_kept() -> None:
    answered: Calls = {f"call-{number}": call(answered=8) for number in range(MAX_CLOSED + 10)}
    after = after_append(RetainedCalls(answered, None), entry(), seq=9, turn_seq=7, new_turn=True)
    assert list(after.closed or {}) == [f"call-{n}" for n in range(10, MAX_CLOSED + 10)]


def test_a_call_beyond_the_bound_is_refused_and_none_is_lost() -> None:
    waiting: Calls = {f"call-{number}": call() for number in range(MAX_OPEN)}
    with pytest.raises(TurnLimitError, match="wait for an answer"):
        check_room(RetainedCalls(waiting, None), entry(opens="another"))
    check_room(RetainedCalls(waiting, None), entry(opens="call-3"))
    check_room(RetainedCalls(waiting, None), entry(answers="call-3"))
    check_room(RetainedCalls(waiting | {"call-3": call(answered=9)}, None), entry(opens="another"))


def test_the_given_calls_are_not_changed() -> None:
    calls: Calls = {"a": call()}
    append(calls, entry("turn-1", opens="b", answers="a"), new_turn=False)
    assert calls == {"a": call()}


def test_a_second_call_of_an_invocation_begins_where_the_first_did() -> None:
    calls: Calls = {"a": call(first=3, last=4, answered=8)}
    second = append(calls, entry("turn-1", opens="b"), seq=9, turn_seq=8, new_turn=False)
    assert second == {"a": call(last=9, answered=8), "b": call(first=3, last=9)}


def test_a_task_keeps_its_rows_whatever_their_invocation() -> None:
    opened = append(None, entry("turn-1", scope="task"), seq=9, turn_seq=7, new_turn=False)
    assert opened == {"task": call(invocation=None, first=7, last=9)}
    grown = append(opened, entry("turn-2", scope="task"), seq=11, new_turn=True)
    assert grown == {"task": call(invocation=None, first=7, last=11)}
    ended = append(grown, entry("turn-2", answers="task"), seq=12, new_turn=False)
    assert ended == {"task": call(invocation=None, first=7, last=11, answered=12)}


def test_a_rewind_takes_back_calls_and_answers() -> None:
    waiting, answered = call(first=3, last=4), call(first=3, last=4, answered=9)
    calls = RetainedCalls(
        {"late": call(first=20, last=21), "a": waiting}, {"b": answered, "c": answered}
    )
    assert before_rewind(calls, 10) == RetainedCalls({"a": waiting}, {"b": answered, "c": answered})
    assert before_rewind(calls, 9) == RetainedCalls(
        {"b": waiting, "c": waiting, "a": waiting}, None
    )
    assert before_rewind(calls, 3) == RetainedCalls(None, None)


def test_spans_are_the_rows_before_the_window() -> None:
    calls: Calls = {
        "late": call(invocation="turn-9", first=30, last=33),
        "across": call(invocation="turn-5", first=18, last=22),
        "early": call(invocation="turn-1", first=3, last=4),
        "too": call(invocation="turn-1", first=3, last=4),  # of the same message
    }
    assert spans(calls, 20) == [("turn-1", 3, 4), ("turn-5", 18, 20)]
    assert spans(calls, 2) == []
    assert spans(None, 20) == []


async def test_a_load_brings_the_rows_of_every_open_call(store_url: str, tenant: str) -> None:
    """More calls than one statement asks for, all before the window."""
    async with SqlSessionStore(store_url) as store:
        ref = await created(store, key(tenant))
        call_count = 210
        for number in range(call_count):
            turn = f"turn-{number}"
            await store.append(ref, said(f"{turn}.u", invocation_id=turn, tokens=10))
            call_of = said(f"{turn}.c", invocation_id=turn, tokens=10, opens_calls=(turn,))
            await store.append(ref, call_of)
        await store.append(ref, said("last", invocation_id="last", tokens=10))
        loaded = await store.load(key(tenant), 10)
        assert loaded is not None
        assert loaded.window_after >= 2 * call_count - 1
        names = [f"turn-{number}.{kind}" for number in range(call_count) for kind in "uc"]
        assert [row.event_id for row in loaded.messages] == [*names, "last"]
