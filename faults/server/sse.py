"""A client's parser of server-sent events: chunks of bytes in, frames out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx

from faults.turns.workspace import END_TYPES
from lango.core.turns.events import MessageDelta, ReasoningDelta, Started
from lango.core.turns.positions import Position

_END: Final = b"\n\n"
_THOUGHT: Final = ReasoningDelta.type
_DELTAS: Final = (MessageDelta.type, _THOUGHT)


@dataclass(frozen=True)
class Frame:
    """One server-sent event: an event of the log, or a part of one that is not written yet."""

    number: int  # of the event
    event: str
    data: dict[str, Any]
    length: int | None = None  # of a part: the characters of the event up to its end
    epoch: int = 0  # of a part: which attempt wrote it

    @classmethod
    def parse(cls, text: str) -> Frame:
        """Parse a frame, and check that its id and type match its data."""
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        data, workspace = json.loads(fields["data"]), Position.parse(fields["id"])
        assert (str(data["id"]), data["type"]) == (fields["id"], fields["event"]), text
        if not workspace.length:
            return cls(workspace.number, fields["event"], data)
        return cls(workspace.number + 1, fields["event"], data, workspace.length, workspace.epoch)

    @property
    def id(self) -> int | str:
        """The id that the server sent."""
        return self.number if self.length is None else str(self.position)

    @property
    def position(self) -> Position:
        """The position of a reader after this frame."""
        if self.length is None:
            return Position(self.number)
        return Position(self.number - 1, self.length, self.epoch)

    @property
    def text(self) -> str:
        """The text of a delta."""
        return str(self.data.get("text", ""))


class FrameReader:
    """Decodes frames from a byte stream; an incomplete frame is buffered."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_torn(self) -> bool:
        """Whether the bytes end within a frame."""
        return bool(self._rest)

    def feed(self, more: bytes) -> Iterator[Frame]:
        """Add bytes; yield the complete frames, without comments."""
        *whole, self._rest = (self._rest + more).split(_END)
        for each in whole:
            if not each.startswith(b":"):
                yield Frame.parse(each.decode())


async def frames(response: httpx.Response) -> AsyncGenerator[Frame]:
    """The events of a stream."""
    reader = FrameReader()
    async for chunk in response.aiter_bytes():
        for frame in reader.feed(chunk):
            yield frame


@dataclass
class ConnectionFrames:
    """The frames read over one connection, after a position."""

    after: int | Position
    frames: list[Frame] = field(default_factory=list[Frame])
    thoughts: bool = True

    @property
    def start(self) -> Position:
        """The position at which the connection began."""
        return self.after if isinstance(self.after, Position) else Position(self.after)

    @property
    def last(self) -> Position:
        """The position after the last frame."""
        return self.frames[-1].position if self.frames else self.start

    @property
    def parts(self) -> int:
        """The number of frames that came before their text was in the log."""
        return sum(frame.length is not None for frame in self.frames)

    @property
    def saw_the_end(self) -> bool:
        return bool(self.frames) and self.frames[-1].event in END_TYPES

    def check(self, log: Sequence[Frame]) -> None:
        """Check that the frames follow the position without a gap, a repeat or anything else."""
        position = self.start
        for frame in self.frames:
            unread = (each for each in log if not _has_read(each, position))
            due = next((each for each in unread if self.thoughts or each.event != _THOUGHT), None)
            assert due is not None, f"behind the end came {_brief([frame])}"
            assert self.thoughts or frame.event != _THOUGHT, f"behind {position} came a thought"
            self._check(frame, due, position, log)
            position = frame.position

    def _check(self, frame: Frame, due: Frame, position: Position, log: Sequence[Frame]) -> None:
        """Check that the frame is the next event of the log, or the missing part of it."""
        wrong = f"behind {position} came {_brief(self.frames)}, not {_brief([due])}"
        assert frame.number == due.number, wrong
        if frame.length is None:
            # Text that a lost attempt streamed is not what the next one logs under this number.
            rests = {due.text, due.text[position.length :]} if due.event in _DELTAS else {due.text}
            expected = due.data | {"text": frame.text} if due.event in _DELTAS else due.data
            assert (frame.event, frame.data) == (due.event, expected), wrong
            assert frame.text in rests, wrong
            return
        start = frame.length - len(frame.text)
        assert start == position.has_of(frame.number, frame.epoch), wrong
        if due.event == frame.event and due.data["message"] == frame.data["message"]:
            assert frame.text == due.text[start : frame.length], wrong
        else:
            assert due.event == Started.type, wrong
            _check_lost(frame, log)


def _has_read(event: Frame, position: Position) -> bool:
    """Whether a reader at a position has all of an event, perhaps in parts."""
    is_streamed = event.number == position.number + 1 and event.event in _DELTAS
    return event.number <= position.number or (is_streamed and len(event.text) == position.length)


def _check_lost(part: Frame, log: Sequence[Frame]) -> None:
    """Check that the text of a lost attempt is revoked: its message is reset or completed later."""
    message = part.data["message"]
    after = (f for f in log if f.number > part.number and f.data.get("message") == message)
    following = next(after, None)
    is_settled = following is not None and following.event not in _DELTAS
    assert is_settled, f"behind {part.position} nothing takes back the text of {message}"


def check_complete_log(log: Sequence[Frame], text: str) -> int:
    """Check a whole log: every number once, one end, at the end, and deltas that make up the text.

    Returns the number of reset messages.
    """
    log = whole_log(log)
    assert [frame.number for frame in log] == list(range(1, len(log) + 1)), _brief(log)
    ends = [frame.number for frame in log if frame.event in END_TYPES]
    assert ends == [len(log)], f"it ends at {ends}: {_brief(log)}"
    drafts: dict[str, tuple[str, int]] = {}
    texts: list[str] = []
    attempt = resets = 0
    for frame in log:
        message = str(frame.data.get("message"))
        if frame.event == Started.type:
            attempt += 1
        elif frame.event == "message.delta":
            pieces, began = drafts.get(message, ("", attempt))
            drafts[message] = pieces + frame.data["text"], began
        elif frame.event == "message.reset":
            resets += 1
            drafts.pop(message, None)
        elif frame.event == "message.completed":
            texts.append(frame.data["text"])
            pieces, began = drafts.pop(message, ("", 0))
            # A worker may die between storing a message and publishing it: the next publishes it.
            whole = pieces == texts[-1] or (attempt != began and texts[-1].startswith(pieces))
            assert whole, f"the pieces make up {pieces[:200]!r}"
    assert not drafts, f"left unfinished: {drafts}"
    assert [each for each in texts if each] == [text], f"the text is {texts!r:.200}"
    return resets


def whole_log(frames_read: Sequence[Frame]) -> list[Frame]:
    """A log that was read from beginning to end, with parts joined to their events.

    Parts of a lost attempt, whose event was never written, are left out.
    """
    joined: list[Frame] = []
    parts: list[Frame] = []
    for frame in frames_read:
        if frame.length is not None:
            parts.append(frame)
            continue
        streamed = "".join(part.text for part in parts)
        if parts and frame.number == parts[-1].number + 1:
            data = parts[-1].data | {"id": parts[-1].number, "text": streamed}
            joined.append(Frame(parts[-1].number, parts[-1].event, data))
        elif parts and frame.event in _DELTAS:
            frame = replace(frame, data=frame.data | {"text": streamed + frame.text})
        joined.append(frame)
        parts = []
    return joined


def _brief(frames_read: Sequence[Frame]) -> str:
    return " ".join(f"{frame.id}:{frame.event}" for frame in frames_read[-40:])
