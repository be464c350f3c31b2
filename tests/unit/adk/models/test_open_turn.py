"""Where the open turn begins, by what the session says of its messages."""

from google.adk.events.event import Event
from google.adk.flows.llm_flows.context import _fencing
from google.genai import types

from lango.adk.models.convert import convert_messages
from lango.adk.models.open_turn import turn_start
from lango.core.context.budget import OTHER_AGENT
from lango.core.messages.messages import Message

QUOTE = Message("user", f"{OTHER_AGENT}, …\n[other] said: …")
ADDED = Message("user", "what ADK remembers of other sessions")
ANSWER = Message("assistant", "an answer")
ASKED = Message("assistant", "", ())


def event(turn: str, text: str, author: str = "user") -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(invocation_id=turn, author=author, content=content)


def user(text: str) -> Message:
    return Message("user", text)


def answered(turn: str) -> Event:
    response = types.FunctionResponse(id="c", name="ask", response={"confirmed": True})
    content = types.Content(role="user", parts=[types.Part(function_response=response)])
    return Event(invocation_id=turn, author="user", content=content)


def test_it_begins_after_the_messages_of_failed_turns() -> None:
    events = [event("1", "one"), event("2", "two"), event("3", "three")]
    assert turn_start([user("one"), user("two"), user("three"), ANSWER], events) == 2


def test_the_same_words_are_told_apart_by_their_turns() -> None:
    events = [event("1", "go"), event("2", "go"), event("3", "go")]
    assert turn_start([user("go")] * 3, events) == 2
    twice = [event("1", "go"), event("2", "go"), event("2", "go")]
    assert turn_start([user("go")] * 3, twice) == 1


def test_what_adk_adds_belongs_to_it() -> None:
    events = [event("1", "one"), event("2", "two")]
    assert turn_start([user("one"), ADDED, user("two")], events) == 1
    assert turn_start([user("one"), ANSWER, user("two"), ANSWER, ADDED], events) == 2


def test_what_another_agent_said_belongs_to_its_turn() -> None:
    events = [event("1", "one"), event("1", "yes", "other"), event("2", "two")]
    assert turn_start([user("one"), QUOTE, user("two"), QUOTE], events) == 2


def test_a_call_that_was_answered_goes_on_with_its_turn() -> None:
    events = [event("1", "one"), event("2", "two"), answered("3")]
    assert turn_start([user("one"), user("two"), ASKED], events) == 1


def test_without_the_user_s_words_the_roles_decide() -> None:
    talk = [user("task"), ANSWER]
    assert turn_start(talk, [event("1", "one")]) == turn_start(talk, []) == 0
    assert turn_start([], [event("1", "one")]) == 0


def test_words_that_adk_quotes_an_agent_with() -> None:
    shown = _fencing._present_other_agent_message(event("1", "hello", "other"))  # pyright: ignore[reportPrivateUsage]
    assert shown is not None
    assert shown.content is not None
    [message] = convert_messages([shown.content])
    assert message.content.startswith(OTHER_AGENT)
