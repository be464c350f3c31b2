"""What the trials of streams look for is found when it is there."""

import json
from dataclasses import replace
from typing import Any

import pytest

from faults.server.sse import ConnectionFrames, Frame, FrameReader, check_complete_log, whole_log
from lango.core.turns.positions import Position

TEXT = "one two"


def told(*events: tuple[str, dict[str, Any]]) -> list[Frame]:
    """The frames of a log."""
    numbered = enumerate(events, 1)
    return [Frame(n, kind, {"id": n, "type": kind} | more) for n, (kind, more) in numbered]


def delta(text: str) -> tuple[str, dict[str, Any]]:
    return "message.delta", {"message": "m", "text": text}


DONE = ("message.completed", {"message": "m", "text": TEXT})
BEGIN: tuple[str, dict[str, Any]] = ("started", {})
RESET = ("message.reset", {"message": "m"})
THOUGHT = ("thought.delta", {"message": "m", "text": "hm"})
END: tuple[str, dict[str, Any]] = ("completed", {})
LOG = told(BEGIN, THOUGHT, delta("one "), delta("two"), DONE, END)


def wire(log: list[Frame]) -> bytes:
    lines = [f"id: {f.id}\nevent: {f.event}\ndata: {json.dumps(f.data)}\n\n" for f in log]
    return ":\n\n".join(lines).encode()


def test_frames_are_read_wherever_their_bytes_are_cut() -> None:
    sent = wire(LOG)
    for index in range(len(sent)):
        reader = FrameReader()
        first = [*reader.feed(sent[:index])]
        assert first == LOG[: len(first)]
        assert [*first, *reader.feed(sent[index:])] == LOG
        assert not reader.is_torn


def test_a_frame_that_is_not_what_it_says_is_found() -> None:
    wrong = replace(LOG[0], event="completed")
    with pytest.raises(AssertionError):
        list(FrameReader().feed(wire([wrong])))


@pytest.mark.parametrize(
    "log",
    [
        told(BEGIN, delta("one "), delta("two"), DONE, END),
        told(BEGIN, delta("one "), RESET, BEGIN, delta("one "), delta("two"), DONE, END),
        told(BEGIN, delta("one "), BEGIN, DONE, END),
        told(BEGIN, BEGIN, DONE, END),
    ],
    ids=["at one go", "begun anew", "told whole by the next", "told by the next alone"],
)
def test_a_whole_log_is_right(log: list[Frame]) -> None:
    check_complete_log(log, TEXT)


WRONG = {
    "a gap": [*LOG[:2], *LOG[3:]],
    "a repeat": [*LOG[:3], *LOG[2:]],
    "no end": LOG[:-1],
    "two ends": told(BEGIN, delta(TEXT), DONE, END, END),
    "an end that is not the last": told(BEGIN, delta(TEXT), END, DONE),
    "a piece that is missing": told(BEGIN, delta("one "), DONE, END),
    "a piece twice": told(BEGIN, delta("one "), delta("one "), delta("two"), DONE, END),
    "pieces of another text": told(BEGIN, delta("three"), BEGIN, DONE, END),
    "a message that is not finished": told(BEGIN, delta("one "), END),
    "another text": told(BEGIN, ("message.completed", {"message": "m", "text": "three"}), END),
    "the text twice": told(BEGIN, DONE, DONE, END),
}


@pytest.mark.parametrize("log", WRONG.values(), ids=list(WRONG))
def test_a_log_that_is_wrong_is_found(log: list[Frame]) -> None:
    with pytest.raises(AssertionError):
        check_complete_log(log, TEXT)


def test_a_connection_tells_what_the_log_holds() -> None:
    ConnectionFrames(0, LOG).check(LOG)
    ConnectionFrames(2, LOG[2:4]).check(LOG)
    ConnectionFrames(4).check(LOG)
    ConnectionFrames(0, [LOG[0], *LOG[2:]], thoughts=False).check(LOG)


@pytest.mark.parametrize(
    "wrong",
    [
        ConnectionFrames(2, LOG[3:]),
        ConnectionFrames(2, LOG[1:]),
        ConnectionFrames(0, [*LOG[:3], *LOG[4:]]),
        ConnectionFrames(0, [*LOG[:3], *LOG[2:]]),
        ConnectionFrames(5, [replace(LOG[5], data={})]),
        ConnectionFrames(0, LOG, thoughts=False),
        ConnectionFrames(6, LOG[5:]),
    ],
    ids=["late", "early", "a gap", "a repeat", "changed", "thoughts", "behind the end"],
)
def test_a_connection_that_tells_another_story_is_found(wrong: ConnectionFrames) -> None:
    with pytest.raises(AssertionError, match="behind"):
        wrong.check(LOG)


def part(number: int, text: str, length: int, epoch: int = 1) -> Frame:
    """A part of an event that is about to be written."""
    data = {"type": "message.delta", "message": "m", "text": text}
    made = Frame(number, "message.delta", data, length, epoch)
    return replace(made, data=data | {"id": made.id})


REST = replace(LOG[2], data=LOG[2].data | {"text": "e "})


def test_parts_are_frames_too() -> None:
    streamed = [part(3, "on", 2), part(3, "e ", 4)]
    assert list(FrameReader().feed(wire(streamed))) == streamed


@pytest.mark.parametrize(
    "connection",
    [
        ConnectionFrames(2, [part(3, "on", 2), part(3, "e ", 4), *LOG[3:]]),
        ConnectionFrames(
            2, [part(3, "on", 2), replace(LOG[2], data=LOG[2].data | {"text": "e "}), *LOG[3:]]
        ),
        ConnectionFrames(Position(2, 2, 1), [part(3, "e ", 4), LOG[3]]),
        ConnectionFrames(Position(2, 4, 1), [LOG[3]]),
    ],
    ids=["in parts alone", "the rest of an event", "resumed within it", "resumed at its end"],
)
def test_parts_of_an_event_are_told_as_the_event(connection: ConnectionFrames) -> None:
    connection.check(LOG)


@pytest.mark.parametrize(
    "wrong",
    [
        ConnectionFrames(2, [part(3, "e ", 4)]),
        ConnectionFrames(2, [part(3, "on", 2), part(3, "on", 2)]),
        ConnectionFrames(2, [part(3, "on", 2), LOG[3]]),
        ConnectionFrames(2, [part(3, "ox", 2)]),
        ConnectionFrames(2, [part(4, "t", 1)]),
    ],
    ids=["a gap", "a repeat", "the rest is missing", "another text", "an event is missing"],
)
def test_parts_that_tell_another_story_are_found(wrong: ConnectionFrames) -> None:
    with pytest.raises(AssertionError, match="behind"):
        wrong.check(LOG)


def test_the_text_of_a_lost_attempt_is_taken_back() -> None:
    lost = ConnectionFrames(2, [part(3, "two", 3)])
    lost.check(told(BEGIN, delta("one "), BEGIN, RESET, delta("one "), delta("two"), DONE, END))
    with pytest.raises(AssertionError, match="takes back"):
        lost.check(told(BEGIN, delta("one "), BEGIN, delta("one "), delta("two"), DONE, END))


def test_a_log_read_in_parts_is_whole() -> None:
    read = [*LOG[:2], part(3, "on", 2), part(3, "e ", 4), *LOG[3:]]
    assert whole_log(read) == LOG
    check_complete_log(read, TEXT)
