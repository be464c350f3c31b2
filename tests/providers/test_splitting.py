"""However the bytes of an answer are split, the same comes of them."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.models.canned import Canned, canned_provider
from lango.core.messages.streams import Done, StreamEvent, ToolCallDone
from lango.testing.wires import WIRES, Call, ScriptedAnswer
from tests.providers.conversation import ask, calls_of, done_of, error_of, say, text_of
from tests.providers.test_switching import MODELS

ANSWERS = st.builds(
    ScriptedAnswer,
    text=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30),
    calls=st.lists(
        st.builds(Call, st.just("now"), st.sampled_from(["{}", '{"é": ["😀", 1]}']), st.just("x")),
        max_size=2,
    ).map(tuple),
    thoughts=st.sampled_from(["", "Hm, ß 東."]),
    signature=st.sampled_from(["", "c2ln"]),
    delta=st.integers(1, 9),
)
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)


CANS = {wire: Canned() for wire in WIRES}
PROVIDERS = {wire: canned_provider(wire, CANS[wire]) for wire in WIRES}


def told(wire: str, canned: Canned) -> list[StreamEvent]:
    """What comes of the bytes."""
    can = CANS[wire]
    can.data, can.sizes, can.breaks = canned.data, canned.sizes, canned.breaks
    return asyncio.run(say(PROVIDERS[wire], ask(MODELS[wire])))


def stream_of(wire: str, answer: ScriptedAnswer) -> bytes:
    return b"".join(frame.data for frame in WIRES[wire].frames(answer, MODELS[wire]))


def without_ids(events: list[StreamEvent]) -> list[object]:
    """Ids that had to be made up are new each time."""
    return [
        (event.call.name, event.call.input) if isinstance(event, ToolCallDone) else event
        for event in events
    ]


@pytest.mark.parametrize("wire", list(WIRES))
@settings(max_examples=25)
@given(answer=ANSWERS, sizes=SIZES)
def test_any_split(wire: str, answer: ScriptedAnswer, sizes: tuple[int, ...]) -> None:
    data = stream_of(wire, answer)
    events = told(wire, Canned(data, sizes))
    assert text_of(events) == answer.text
    assert len(calls_of(events)) == len(answer.calls)
    assert sum(isinstance(event, Done) for event in events) == 1
    assert without_ids(events) == without_ids(told(wire, Canned(data)))


@pytest.mark.parametrize("wire", list(WIRES))
def test_split_at_every_byte(wire: str) -> None:
    answer = ScriptedAnswer("Grüße, 東京 😀", (Call("now", '{"é": 1}', "x"),), delta=4)
    data = stream_of(wire, answer)
    expected = told(wire, Canned(data))
    assert done_of(expected).finish_reason == "tool_calls"
    assert told(wire, Canned(data, (1,))) == expected
    step = max(1, len(data) // 60)
    for at in range(1, len(data), step):
        assert told(wire, Canned(data, (at, len(data)))) == expected


@pytest.mark.parametrize("wire", list(WIRES))
@pytest.mark.parametrize("breaks", [False, True])
def test_an_answer_is_whole_from_its_finish_marker_on(wire: str, breaks: bool) -> None:
    frames = WIRES[wire].frames(ScriptedAnswer("Hello."), MODELS[wire])
    first = next(number for number, frame in enumerate(frames) if frame.finish)
    data = [frame.data for frame in frames]
    whole = told(wire, Canned(b"".join(data[: first + 1]), breaks=breaks))
    assert text_of(whole) == "Hello."
    assert done_of(whole).finish_reason == "stop"
    short = told(wire, Canned(b"".join(data[:first]), breaks=breaks))
    assert error_of(short).partial_text == text_of(short) == "Hello."


@pytest.mark.parametrize("wire", list(WIRES))
def test_characters_that_look_like_the_end_of_a_line(wire: str) -> None:
    answer = ScriptedAnswer("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg", delta=3)
    assert text_of(told(wire, Canned(stream_of(wire, answer), (7,)))) == answer.text
