"""Server-sent events as a client reads them: bytes in, cut wherever they are, and frames out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from faults.turn_place import END_TYPES
from lango.core.turns.events import ReasoningDelta, Started

_END: Final = b"\n\n"


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    id: int
    event: str
    data: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> Frame:
        """A frame from its lines; it is checked to be what it says."""
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        told = cls(int(fields["id"]), fields["event"], json.loads(fields["data"]))
        assert (told.data["id"], told.data["type"]) == (told.id, told.event), text
        return told


class FrameReader:
    """Decodes frames from a byte stream; an incomplete frame is kept back."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_torn(self) -> bool:
        """Whether it ends within a frame."""
        return bool(self._rest)

    def feed(self, more: bytes) -> Iterator[Frame]:
        """The frames that are whole now; comments are passed over."""
        *whole, self._rest = (self._rest + more).split(_END)
        for each in whole:
            if not each.startswith(b":"):
                yield Frame.of(each.decode())


async def frames(response: httpx.Response) -> AsyncGenerator[Frame]:
    """The events of a stream."""
    reader = FrameReader()
    async for chunk in response.aiter_bytes():
        for frame in reader.feed(chunk):
            yield frame


@dataclass
class Sitting:
    """What was read over one connection, behind a number."""

    after: int
    frames: list[Frame] = field(default_factory=list[Frame])
    thoughts: bool = True

    @property
    def last(self) -> int:
        """The newest number that is known now."""
        return self.frames[-1].id if self.frames else self.after

    @property
    def saw_the_end(self) -> bool:
        return bool(self.frames) and self.frames[-1].event in END_TYPES

    def check(self, log: Sequence[Frame]) -> None:
        """It began right behind its number, and had no gap, no repeat and nothing else."""
        behind = [frame for frame in log if frame.id > self.after]
        if not self.thoughts:
            behind = [frame for frame in behind if frame.event != ReasoningDelta.type]
        right = behind[: len(self.frames)]
        assert self.frames == right, (
            f"behind {self.after} came {_brief(self.frames)}, not {_brief(right)}"
        )


def check_told(log: Sequence[Frame], text: str) -> int:
    """Check a whole log: every number once, one end and that the last, its pieces make up the text.

    The number of messages that were begun anew is returned.
    """
    assert [frame.id for frame in log] == list(range(1, len(log) + 1)), _brief(log)
    ends = [frame.id for frame in log if frame.event in END_TYPES]
    assert ends == [len(log)], f"it ends at {ends}: {_brief(log)}"
    drafts: dict[str, tuple[str, int]] = {}
    said: list[str] = []
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
            said.append(frame.data["text"])
            pieces, began = drafts.pop(message, ("", 0))
            # A worker may die between storing a message and publishing it: the next publishes it.
            whole = pieces == said[-1] or (attempt != began and said[-1].startswith(pieces))
            assert whole, f"the pieces make up {pieces[:200]!r}"
    assert not drafts, f"left unfinished: {drafts}"
    assert [each for each in said if each] == [text], f"the text is {said!r:.200}"
    return resets


def _brief(told: Sequence[Frame]) -> str:
    return " ".join(f"{frame.id}:{frame.event}" for frame in told[-40:])
