"""Deltas of a model's answer that reach the turn's log directly, not as ADK's partial events.

ADK takes about 0.3 ms to pass on a partial event and keeps it until the turn ends. Readers of a
durable turn are served from its log. So ADK gets only the first delta of an answer, whose event
carries the message's id, and the whole answer.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse

from lango.adk.models.responses import partial_response
from lango.core.failpoints import failpoint
from lango.core.messages.streams import StreamEvent, TextDelta, ThoughtDelta
from lango.core.turns.events import Publish, TurnEvent

STREAM: Final = "lango_stream"
"""In the custom metadata of an answer's first delta: the number of its stream."""


class ReadDelta(Protocol):
    """Notes a delta of one message, and returns its turn event."""

    def __call__(self, text: str, *, is_thought: bool) -> TurnEvent:
        """Note the text as part of the message."""
        ...


class DirectDeltas:
    """Publishes the deltas of one turn's answers; synchronous, from the task of the model call."""

    def __init__(self, publish: Publish, abort: asyncio.Event | None) -> None:
        self._publish = publish
        self._abort = abort
        self._opened = 0
        self._unbound: dict[int, _Stream] = {}

    def open(self, first: LlmResponse) -> _Stream:
        """A stream for the deltas that follow this one."""
        self._opened += 1
        first.custom_metadata = {STREAM: self._opened}
        stream = self._unbound[self._opened] = _Stream(self._publish, self._abort)
        return stream

    def bind(self, event: Event, read: ReadDelta) -> None:
        """If a partial event opened a stream, publish the stream's deltas as of its message."""
        metadata = event.custom_metadata or {}
        stream = self._unbound.pop(metadata.pop(STREAM, 0), None)
        event.custom_metadata = metadata or None
        if stream is not None:
            stream.bind(read)


class _Stream:
    """The deltas of one answer, except its first."""

    def __init__(self, publish: Publish, abort: asyncio.Event | None) -> None:
        self._publish = publish
        self._abort = abort
        self._read: ReadDelta | None = None
        self._waiting: list[TextDelta | ThoughtDelta] = []  # until the first delta's event is read

    def take(self, delta: TextDelta | ThoughtDelta) -> bool:
        """Publish a delta; False if the turn is being aborted.

        Without an event that passes through it, ADK may not notice the abort.
        """
        if self._abort is not None and self._abort.is_set():
            return False
        failpoint("model.delta")
        if self._read is None:
            self._waiting.append(delta)
        else:
            self._publish(self._read(delta.text, is_thought=isinstance(delta, ThoughtDelta)))
        return True

    def bind(self, read: ReadDelta) -> None:
        self._read = read
        for delta in self._waiting:
            self._publish(read(delta.text, is_thought=isinstance(delta, ThoughtDelta)))
        self._waiting.clear()


class AnswerDeltas:
    """Passes on the deltas of one answer: directly, or as ADK's partial responses."""

    def __init__(self, direct: DirectDeltas | None) -> None:
        self._direct = direct
        self._stream: _Stream | None = None

    def partial(self, event: StreamEvent) -> LlmResponse | None:
        """The partial response for an event; None if it is no delta, or was published directly."""
        if not isinstance(event, TextDelta | ThoughtDelta) or not event.text:
            return None
        if self._stream is not None and self._stream.take(event):
            return None
        response = partial_response(event)
        if self._direct is not None and self._stream is None:
            self._stream = self._direct.open(response)
        return response
