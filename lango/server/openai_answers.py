"""What happens in a turn, as a chat completion: whole, or in chunks as it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

from fastapi import Response
from fastapi.responses import JSONResponse

from lango.core.turns import (
    ApprovalRequired,
    Cancelled,
    Completed,
    Failed,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ThoughtDelta,
    Waiting,
    error_data,
)
from lango.core.values import JsonObject, json_text
from lango.errors import TurnCancelledError, TurnError
from lango.server.openai_errors import NO_RETRY, failure
from lango.server.openai_schemas import CHUNK, ChatChoice, ChatCompletion, usage_of
from lango.store.turn_log import LoggedEvent
from lango.store.turn_rows import Turn

_DONE: Final = b"data: [DONE]\n\n"
_BETWEEN: Final = "\n\n"  # messages of one turn
_WAITS: Final = (
    "The call {name}({arguments}) waits for approval. Answer it with "
    'POST /v1/turns/{turn}/approvals {{"call": "{call}", "approved": true}}, or false.'
)

Events = AsyncGenerator[LoggedEvent]
Remember = Callable[[str], Awaitable[None]]
"""Notes an answer that the client is about to have."""


class Reading:
    """Follows a turn: what there is to tell of each event, and how it ended."""

    def __init__(self, turn: Turn) -> None:
        self.text = self.thoughts = ""
        self.usage = usage_of(None)
        self.error: JsonObject | None = error_data(TurnError("The turn has no end."))
        self._turn = turn
        self._newest = ""
        self._told: dict[str, str] = {}

    def read(self, event: LoggedEvent) -> Iterator[JsonObject]:
        """More of the answer, as OpenAI's deltas."""
        data = event.data
        if event.type == ThoughtDelta.type:
            self.thoughts += data["text"]
            yield {"reasoning_content": data["text"]}
        elif event.type == MessageDelta.type:
            yield from self._say(data["message"], data["text"])
        elif event.type == MessageCompleted.type:
            known = self._told.get(data["message"], "")
            if data["text"].startswith(known):
                yield from self._say(data["message"], data["text"][len(known) :])
        elif event.type == MessageReset.type:  # what a client has, it has
            self._told.pop(data["message"], None)
            self._newest = ""
        elif event.type == ApprovalRequired.type:
            yield from self._say(data["approval"], self._notice(data))
        elif event.type in (Completed.type, Waiting.type, Failed.type, Cancelled.type):
            self._end(event)

    def _say(self, message: str, text: str) -> Iterator[JsonObject]:
        if not text:
            return
        between = _BETWEEN if self.text and message != self._newest else ""
        self._newest = message
        self._told[message] = self._told.get(message, "") + text
        self.text += between + text
        yield {"content": between + text}

    def _notice(self, data: JsonObject) -> str:
        return _WAITS.format(
            name=data["name"],
            arguments=json_text(data["arguments"]),
            turn=self._turn.id,
            call=data["approval"],
        )

    def _end(self, event: LoggedEvent) -> None:
        self.usage = usage_of(event.data.get("usage"))
        self.error = event.data.get("error")
        if event.type == Cancelled.type:
            self.error = error_data(TurnCancelledError())


async def completion(turn: Turn, events: Events, remember: Remember) -> Response:
    """The answer of a turn once it has ended."""
    reading = Reading(turn)
    async with aclosing(events):
        async for event in events:
            if event.type != MessageDelta.type:  # a message that was begun anew is told once
                for _ in reading.read(event):
                    pass
    if reading.error is not None:
        return JSONResponse(failure(reading.error).model_dump(), 500, NO_RETRY)
    await remember(reading.text)
    message: JsonObject = {"role": "assistant", "content": reading.text, "refusal": None}
    if reading.thoughts:
        message["reasoning_content"] = reading.thoughts
    told = ChatCompletion(
        id=turn.id,
        created=int(time.time()),
        model=turn.session.app_name,
        choices=[ChatChoice(message=message)],
        usage=reading.usage,
    )
    return JSONResponse(told.model_dump())


async def chunks(
    turn: Turn, events: Events, remember: Remember, *, usage_apart: bool
) -> AsyncGenerator[bytes]:
    """The answer of a turn as it comes; the last chunk has the usage."""
    reading = Reading(turn)
    head = {
        "id": turn.id,
        "object": CHUNK,
        "created": int(time.time()),
        "model": turn.session.app_name,
    }

    def chunk(delta: JsonObject, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    async with aclosing(events):
        async for event in events:
            for delta in reading.read(event):
                yield chunk(delta)
    if reading.error is not None:
        yield _frame(failure(reading.error).model_dump())
        return
    await remember(reading.text)  # before the client knows that this is all, and goes on
    if usage_apart:
        yield chunk({}, "stop")
        yield _frame({**head, "choices": [], "usage": reading.usage})
    else:
        yield chunk({}, "stop", usage=reading.usage)
    yield _DONE


def _frame(told: JsonObject) -> bytes:
    return f"data: {json_text(told)}\n\n".encode()
