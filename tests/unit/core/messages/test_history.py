"""Token-budget history: a suffix that fits and begins where a conversation may begin."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lango.core.context.tokens import message_tokens
from lango.core.messages.history import (
    DEFAULT_TOKEN_BUDGET,
    effective_budget,
    token_budget_truncate,
    unsafe_head,
)
from lango.core.messages.messages import Message, ToolCall

THOUSAND = "a" * 2656  # a message of exactly 1,000 tokens


def user(text: str = "hi") -> Message:
    return Message("user", text)


def call(*ids: str, role: str = "assistant") -> Message:
    return Message(role, "", tuple(ToolCall(one, "exec", input="{}") for one in ids))


def answer(*ids: str, role: str = "tool") -> Message:
    return Message(role, "", tuple(ToolCall(one, "exec", output="{}") for one in ids))


def legacy_answer(role: str = "function") -> Message:
    return Message(role, '{"result":"ok"}')


def one(_: Message) -> int:
    """Every message costs a token: budgets are then counts."""
    return 1


def last(history: Sequence[Message], count: int) -> list[Message]:
    return token_budget_truncate(history, count, tokens=one)


call_ids = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)


def _calls(role: str) -> SearchStrategy[Message]:
    return call_ids.map(lambda ids: call(*ids, role=role))


def _answers(role: str) -> SearchStrategy[Message]:
    return call_ids.map(lambda ids: answer(*ids, role=role))


def _texts(role: str) -> SearchStrategy[Message]:
    return st.text(max_size=60).map(lambda text: Message(role, text))


histories = st.lists(
    st.sampled_from(["assistant", "model"]).flatmap(_calls)
    | st.sampled_from(["tool", "function"]).flatmap(_answers)
    | st.sampled_from(["user", "assistant", "model", "system", "control", "other"]).flatmap(_texts)
    | st.sampled_from(["tool", "function"]).map(legacy_answer),
    max_size=14,
)
budgets = st.integers(1, 200)


def total(history: Sequence[Message]) -> int:
    return sum(map(message_tokens, history))


@given(histories, budgets)
def test_it_never_exceeds_the_budget(history: list[Message], budget: int) -> None:
    assert total(token_budget_truncate(history, budget)) <= budget


@given(histories, budgets)
def test_it_is_a_suffix(history: list[Message], budget: int) -> None:
    kept = token_budget_truncate(history, budget)
    assert kept == history[len(history) - len(kept) :]


@given(histories, budgets)
def test_a_cut_history_begins_safely(history: list[Message], budget: int) -> None:
    kept = token_budget_truncate(history, budget)
    if not kept or len(kept) == len(history):
        return
    first, *behind = kept
    assert not first.is_tool
    if first.is_assistant and first.tool_calls:
        wanted = {call.id for call in first.tool_calls}
        answers = [message for message in behind if message.is_tool]
        found = {call.id for message in answers for call in message.tool_calls}
        by_position = bool(behind and behind[0].is_tool and not behind[0].tool_calls)
        assert by_position or wanted <= found


@given(histories)
def test_what_fits_is_left_whole(history: list[Message]) -> None:
    assert token_budget_truncate(history, max(1, total(history))) == history
    assert token_budget_truncate(history) == history


@given(histories, budgets)
def test_nothing_is_cut_that_could_have_stayed(history: list[Message], budget: int) -> None:
    """What is left out either did not fit, or could not begin a conversation."""
    kept = token_budget_truncate(history, budget)
    for start in range(len(history) - len(kept)):
        longer = history[start:]
        assert total(longer) > budget or unsafe_head(longer) > 0


@given(histories, budgets)
def test_cutting_again_cuts_nothing(history: list[Message], budget: int) -> None:
    kept = token_budget_truncate(history, budget)
    assert token_budget_truncate(kept, budget) == kept


@given(histories, budgets)
def test_the_given_history_is_not_changed(history: list[Message], budget: int) -> None:
    before = list(history)
    kept = token_budget_truncate(history, budget)
    assert history == before
    assert kept is not history


def test_the_default_budget() -> None:
    assert DEFAULT_TOKEN_BUDGET == 32_000
    assert effective_budget(0) == 32_000
    assert effective_budget(17) == 17
    assert len(token_budget_truncate([user(THOUSAND)] * 40)) == 32
    assert len(token_budget_truncate([user(THOUSAND)] * 40, 0)) == 32
    assert len(token_budget_truncate([user(THOUSAND)] * 32)) == 32


def test_the_budget_is_used_up_to_its_last_token() -> None:
    history = [user(THOUSAND)] * 5
    assert [len(token_budget_truncate(history, n)) for n in (2_999, 3_000, 3_001)] == [2, 3, 3]


def test_the_first_message_that_does_not_fit_ends_it() -> None:
    """A small one behind a large one does not slip in: that would tear a hole."""
    history = [user("small"), user(THOUSAND), user("small")]
    assert token_budget_truncate(history, 500) == [user("small")]


def test_nothing_fits() -> None:
    assert token_budget_truncate([user(THOUSAND)], 999) == []
    assert token_budget_truncate([], 999) == []


def test_leading_tool_messages_of_a_cut_history_go() -> None:
    history = [user(), call("a", "b"), answer("a"), answer("b"), user("next")]
    assert last(history, 4) == history[1:]
    assert last(history, 3) == [user("next")]
    assert last(history, 2) == [user("next")]


def test_a_call_whose_answer_is_missing_goes_when_it_leads_a_cut_history() -> None:
    history = [user(), call("a"), user("never mind"), Message("assistant", "ok")]
    assert last(history, 3) == history[2:]


def test_a_call_answered_in_part_goes_with_that_part() -> None:
    history = [user(), call("a", "b"), answer("a"), user("next")]
    assert last(history, 3) == [user("next")]


def test_a_call_answered_further_behind_stays() -> None:
    """The events of parallel agents are interleaved."""
    history = [user(), call("a"), call("b"), answer("b"), answer("a")]
    assert last(history, 4) == history[1:]
    assert last(history, 3) == history[2:]


def test_the_trailing_call_of_a_whole_history_is_pending_not_orphaned() -> None:
    history = [user(), call("a")]
    assert last(history, 2) == history
    assert last(history, 1) == []


def test_a_whole_history_may_begin_with_a_tool_message() -> None:
    assert last([answer("a"), user()], 2) == [answer("a"), user()]


@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_legacy_answer_answers_the_call_right_before_it(role: str) -> None:
    history = [user(), call("a", role="model"), legacy_answer(role), user("next")]
    assert last(history, 3) == history[1:]
    assert last(history, 2) == [user("next")]
