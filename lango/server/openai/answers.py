"""A turn's answer as a chat completion: complete, or in chunks as it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

from fastapi import Response
from fastapi.responses import JSONResponse

from lango.core.ids import new_id
from lango.core.turns.events import (
    ApprovalRequired,
    Cancelled,
    Completed,
    CredentialRequired,
    Failed,
    InputRequired,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    error_data,
)
from lango.core.values import JsonObject, json_text
from lango.errors import TurnCancelledError, TurnError, TurnNotFoundError
from lango.server.http.streams import MEDIA_TYPE
from lango.server.openai.errors import failure, interruption, turn_error
from lango.server.openai.schemas import (
    CHUNK,
    ChatChoice,
    ChatCompletion,
    ChatRequest,
    usage_of,
)
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn

_DONE: Final = b"data: [DONE]\n\n"
_DELETED: Final = "The session was deleted, and its turns with it."
_BETWEEN: Final = "\n\n"  # messages of one turn
_WAITS: Final = (
    "The call {name}({arguments}) waits for approval. Answer it in the server's /console/, or with "
    'POST /v1/turns/{turn}/approvals {{"call": "{call}", "approved": true}}, or false.'
)
_NEEDS: Final = "The tool {name} needs a credential of yours ({kind}): {next_step}"
_ANSWER: Final = "send it with POST /v1/turns/{turn}/approvals"

Events = AsyncGenerator[LoggedEvent]
Remember = Callable[[str | None], Awaitable[None]]
"""Records the answer that the client is about to have; None for an unknown part of it."""


class DeltaReader:
    """Converts a turn's events into OpenAI's deltas, and keeps how the turn ended."""

    def __init__(self, turn: Turn) -> None:
        self.text = self.thoughts = ""
        self.usage = usage_of(None)
        self.error: JsonObject | None = error_data(TurnError("The turn has no end."))
        self._turn = turn
        self._newest = ""
        self._sent_texts: dict[str, str] = {}

    def read(self, event: LoggedEvent) -> Iterator[JsonObject]:
        """The deltas of one event."""
        data = event.data
        if event.type == ReasoningDelta.type:
            self.thoughts += data["text"]
            yield {"reasoning_content": data["text"]}
        elif event.type == MessageDelta.type:
            yield from self._say(data["message"], data["text"])
        elif event.type == MessageCompleted.type:
            sent_text = self._sent_texts.get(data["message"], "")
            if data["text"].startswith(sent_text):
                yield from self._say(data["message"], data["text"][len(sent_text) :])
        elif event.type == MessageReset.type:  # text that was sent cannot be taken back
            self._sent_texts.pop(data["message"], None)
            self._newest = ""
        elif event.type == ApprovalRequired.type:
            notice = {"name": data["name"], "arguments": json_text(data["arguments"])}
            notice |= {"turn": self._turn.id, "call": data["approval"]}
            yield from self._say(data["approval"], _WAITS.format(**notice))
        elif event.type == CredentialRequired.type:
            next_step = data.get("auth_uri") or _ANSWER.format(turn=self._turn.id)
            text = _NEEDS.format(name=data["name"], kind=data["kind"], next_step=next_step)
            yield from self._say(data["credential"], text)
        elif event.type in (Completed.type, InputRequired.type, Failed.type, Cancelled.type):
            self._end(event)

    def _say(self, message: str, text: str) -> Iterator[JsonObject]:
        if not text:
            return
        between = _BETWEEN if self.text and message != self._newest else ""
        self._newest = message
        self._sent_texts[message] = self._sent_texts.get(message, "") + text
        self.text += between + text
        yield {"content": between + text}

    def _end(self, event: LoggedEvent) -> None:
        self.usage = usage_of(event.data.get("usage"))
        self.error = event.data.get("error")
        if event.type == Cancelled.type:
            self.error = error_data(TurnCancelledError())


async def completion(turn: Turn, events: Events, remember: Remember) -> Response:
    """The answer of a turn, after the turn has ended."""
    reading = DeltaReader(turn)
    async with aclosing(events):
        async for event in events:
            if event.type != MessageDelta.type:  # completed messages only, no reset ones
                for _ in reading.read(event):
                    pass
    if reading.error is not None:
        return turn_error(failure(reading.error))
    await remember(reading.text)
    thoughts: JsonObject = {"reasoning_content": reading.thoughts} if reading.thoughts else {}
    return _completion_response(
        turn.id, turn.session.app_name, reading.usage, reading.text, **thoughts
    )


def local_answer(chat_request: ChatRequest, text: str) -> Response:
    """An answer that the server makes without the agent, streamed if asked for. Costs no tokens."""
    answer_id, usage = new_id("local"), usage_of(None)
    if not chat_request.stream:
        return _completion_response(answer_id, chat_request.model, usage, text)
    chunk = _Chunks(answer_id, chat_request.model)
    end = chunk.last(usage, usage_apart=chat_request.tells_usage_apart)
    return Response(chunk.first() + chunk.delta({"content": text}) + end, media_type=MEDIA_TYPE)


def _completion_response(
    answer_id: str, model: str, usage: JsonObject, text: str, **fields: Any
) -> Response:
    message = {"role": "assistant", "content": text, "refusal": None, **fields}
    body = ChatCompletion(
        id=answer_id,
        created=int(time.time()),
        model=model,
        choices=[ChatChoice(message=message)],
        usage=usage,
    )
    return JSONResponse(body.model_dump())


class _Chunks:
    """Makes the chunks of one answer."""

    def __init__(self, answer_id: str, model: str) -> None:
        created = int(time.time())
        self._head = {"id": answer_id, "object": CHUNK, "created": created, "model": model}

    def delta(self, delta: JsonObject, finish: str | None = None, **fields: Any) -> bytes:
        """One chunk."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame({**self._head, "choices": [choice], **fields})

    def first(self) -> bytes:
        """The first chunk."""
        return self.delta({"role": "assistant", "content": ""})

    def last(self, usage: JsonObject, *, usage_apart: bool) -> bytes:
        """The last chunks, with the usage, and `[DONE]`."""
        if not usage_apart:
            return self.delta({}, "stop", usage=usage) + _DONE
        return (
            self.delta({}, "stop") + _frame({**self._head, "choices": [], "usage": usage}) + _DONE
        )


async def chunks(
    turn: Turn, events: Events, remember: Remember, *, usage_apart: bool
) -> AsyncGenerator[bytes]:
    """The answer of a turn as it comes; the last chunk has the usage."""
    reading, chunk = DeltaReader(turn), _Chunks(turn.id, turn.session.app_name)
    await remember(None)  # before the client has any text: this process may be killed at any time
    yield chunk.first()
    try:
        async with aclosing(events):
            async for event in events:
                for delta in reading.read(event):
                    yield chunk.delta(delta)
    except TurnNotFoundError:
        reading.error = error_data(TurnNotFoundError(_DELETED))
    if reading.error is None:
        await remember(reading.text)  # before the client has the end and continues
        yield chunk.last(reading.usage, usage_apart=usage_apart)
    else:
        yield _frame(failure(reading.error))


def interruption_frame(turn: Turn) -> bytes:
    """The end of a stream that the server ends early; without it, clients take it for complete."""
    return _frame(interruption(turn.id))


def _frame(data: JsonObject) -> bytes:
    return f"data: {json_text(data)}\n\n".encode()
