"""Cutting a request of ADK's: valid whatever it was, and in budget."""

from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lango.adk.models.convert import convert_messages
from lango.adk.plugins.budget import cut_to_fit
from lango.core.context.budget import Limits, open_turn, request_tokens
from lango.errors import ContextTooLongError
from tests.support.conversations import problems


def text(role: str, words: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=words)])


def exchange(number: int, calls: int, output: str, said: str) -> list[types.Content]:
    """Calls, their results in one content as ADK has it, and perhaps words around them."""
    ids = [f"c{number}_{n}" for n in range(calls)]
    words = [types.Part(text=said)] if said else []
    asked_calls = [
        types.Part(function_call=types.FunctionCall(id=i, name="look", args={})) for i in ids
    ]
    answers = [
        types.Part(
            function_response=types.FunctionResponse(id=i, name="look", response={"seen": output})
        )
        for i in ids
    ]
    return [
        types.Content(role="model", parts=[*words, *asked_calls]),
        types.Content(role="user", parts=[*answers]),
    ]


words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)


@st.composite
def histories(draw: st.DrawFn) -> list[types.Content]:
    contents: list[types.Content] = []
    for number in range(draw(st.integers(1, 6))):
        contents.append(text("user", "ask " + draw(words)))
        for step in range(draw(st.integers(0, 3))):
            output = draw(words) * draw(st.sampled_from([1, 1, 20]))
            calls = draw(st.integers(1, 3))
            contents += exchange(number * 10 + step, calls, output, draw(words).strip())
        contents.append(text("model", "answer " + draw(words)))
    return contents[: draw(st.integers(1, len(contents)))]


def total(contents: list[types.Content]) -> int:
    return sum(map(request_tokens, convert_messages(contents)))


@given(histories(), st.integers(1, 1_500))
def test_a_cut_request_is_valid_in_budget_and_keeps_the_open_turn(
    contents: list[types.Content], budget: int
) -> None:
    before = convert_messages(contents)
    original = [content.model_dump() for content in contents]
    request = LlmRequest(contents=contents)
    try:
        cut = cut_to_fit(request, Limits(budget))
    except ContextTooLongError:
        assert total(contents) > budget
        assert [content.model_dump() for content in request.contents] == original
        return
    finally:
        assert [content.model_dump() for content in contents] == original  # the session's own
    after = convert_messages(request.contents)
    assert total(request.contents) <= budget
    assert cut.left_out == len(before) - len(after)
    assert [p for p in problems(after) if "no result" not in p or not _is_open(contents)] == []
    turn = before[open_turn(before) :]
    kept = after[len(after) - len(turn) :]
    assert [(m.role, [c.id for c in m.tool_calls]) for m in kept] == [
        (m.role, [c.id for c in m.tool_calls]) for m in turn
    ]
    assert [m.content for m in kept if not m.is_tool] == [m.content for m in turn if not m.is_tool]
    if cut.left_out:
        assert after[0].role == "user"
        assert cut.why == "budget"


def _is_open(contents: list[types.Content]) -> bool:
    """Whether the last content calls: its results are still to come."""
    return any(part.function_call for part in contents[-1].parts or [])


def test_what_fits_keeps_its_very_contents() -> None:
    contents = [text("user", "one"), *exchange(1, 2, "x", "hm"), text("model", "two")]
    request = LlmRequest(contents=contents)
    cut = cut_to_fit(request, Limits(10_000))
    assert request.contents is contents or request.contents == contents
    assert (cut.left_out, cut.shortened, cut.why) == (0, (), "")


def test_results_whose_call_is_gone_go_too() -> None:
    """Interleaved, as two agents may leave them: a cut falls between a call and its result."""
    first, first_result = exchange(1, 1, "x" * 300, "")
    second, second_result = exchange(2, 1, "y", "")
    contents = [text("user", "old " * 50), first, text("user", "mid"), second]
    contents += [first_result, second_result, text("user", "new")]
    sizes: set[int] = set()
    for budget in range(20, total(contents), 5):
        request = LlmRequest(contents=list(contents))
        cut_to_fit(request, Limits(budget))
        after = convert_messages(request.contents)
        called = {
            call.id for message in after if message.is_assistant for call in message.tool_calls
        }
        answered = {call.id for message in after if message.is_tool for call in message.tool_calls}
        assert answered <= called
        sizes.add(len(after))
    assert len(sizes) > 2


def test_a_part_that_is_no_message_does_not_confuse_the_count() -> None:
    odd: Any = types.Content(role="user", parts=[types.Part(text="")])
    contents = [text("user", "old " * 100), odd, text("model", "hm"), odd, text("user", "new")]
    request = LlmRequest(contents=contents)
    cut = cut_to_fit(request, Limits(30))
    assert [message.content for message in convert_messages(request.contents)] == ["new"]
    assert cut.left_out == 2
