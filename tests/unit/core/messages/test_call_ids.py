"""Ids of tool calls that came without one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.ids import check_id
from lango.core.messages.call_ids import with_fallback_ids

# Names that end like a number behind a fallback id do, so that two could fall together.
names = st.sampled_from(["exec", "search", "search_2", "search_2_2", "search_3", ""]) | st.text()
no_id = st.sampled_from([None, ""])
calls_without_ids = st.lists(st.tuples(no_id, st.none() | names), max_size=8)
calls = st.lists(
    st.tuples(no_id | st.sampled_from(["call_search", "call_search_2", "adk-1"]), names),
    max_size=8,
)


def test_an_id_of_its_own_is_kept() -> None:
    assert with_fallback_ids([("adk-uuid-123", "exec")]) == ["adk-uuid-123"]


@pytest.mark.parametrize("missing", [None, ""])
def test_the_first_without_one_is_named_after_its_function(missing: str | None) -> None:
    assert with_fallback_ids([(missing, "search")]) == ["call_search"]


def test_further_ones_of_the_same_name_are_numbered() -> None:
    found = with_fallback_ids([("", "search"), ("", "exec"), ("", "search"), ("", "search")])
    assert found == ["call_search", "call_exec", "call_search_2", "call_search_3"]


def test_a_nameless_call_gets_an_id_too() -> None:
    assert with_fallback_ids([(None, None), (None, "")]) == ["call_", "call__2"]


def test_calls_with_ids_are_not_counted() -> None:
    assert with_fallback_ids([("x", "search"), ("", "search")]) == ["x", "call_search"]


@given(calls_without_ids)
def test_no_two_calls_without_ids_share_one(calls: list[tuple[str | None, str | None]]) -> None:
    assert len(set(with_fallback_ids(calls))) == len(calls)


@given(calls)
def test_a_fallback_is_never_an_id_that_another_call_has(
    calls: list[tuple[str | None, str]],
) -> None:
    made = with_fallback_ids(calls)
    given_ids = {call_id for call_id, _ in calls if call_id}
    fallbacks = [new for (call_id, _), new in zip(calls, made, strict=True) if not call_id]
    assert given_ids.isdisjoint(fallbacks)
    assert len(set(fallbacks)) == len(fallbacks)


@given(calls)
def test_an_answer_in_the_same_order_gets_the_same_ids(calls: list[tuple[str | None, str]]) -> None:
    assert with_fallback_ids(calls) == with_fallback_ids(list(calls))


@given(st.lists(st.tuples(no_id, st.text(max_size=400)), max_size=12))
def test_every_fallback_may_be_stored(calls: list[tuple[str | None, str]]) -> None:
    for call_id in with_fallback_ids(calls):
        assert check_id("call id", call_id) == call_id


@given(st.lists(st.tuples(no_id, st.text(max_size=400)), max_size=12))
def test_no_id_begins_as_adks_own_do(calls: list[tuple[str | None, str]]) -> None:
    """ADK strips ids that begin with "adk-"."""
    assert not any(call_id.startswith("adk-") for call_id in with_fallback_ids(calls))
