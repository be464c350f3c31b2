"""Runs in ADK's API: each is a durable turn, which continues when its client disconnects."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from lango.adk.api.contents import ClientAnswers, ClientMessage, read_answers, read_message
from lango.adk.api.events import as_sent
from lango.adk.api.sessions import check_state
from lango.core.values import JsonObject, json_text
from lango.errors import SessionNotFoundError, TurnNotFoundError, UnsupportedRequestError
from lango.server.adk.errors import AdkRoute, failure, respond, responses
from lango.server.adk.schemas import AdkRunRequest
from lango.server.adk.users import AdkUser, adk_user
from lango.server.auth.callers import SECURED, AnyCaller, recheck
from lango.server.auth.limits import Admission
from lango.server.backend import Served
from lango.server.http.problems import responses as problems
from lango.server.http.streams import MEDIA_TYPE, EventStream
from lango.server.http.waiting import answer_while_connected
from lango.server.routes.schemas import IdempotencyKey
from lango.store.turns.rows import Turn
from lango.turns.adk_events import AdkEvents
from lango.turns.service import Turns

router = APIRouter(
    tags=["adk"],
    dependencies=SECURED,
    route_class=AdkRoute,
    responses=responses(400, 401, 403, 404, 409, 413, 415, 422, 429, 503) | problems(421),
)
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
_CUT: Final = (
    "The server ended this stream. The turn continues: load the session again to see its events."
)
_DELETED: Final = "The session was deleted, and its turns with it."
_UNSUPPORTED: Final = {
    "custom_metadata": "customMetadata",
    "service_tier": "serviceTier",
}


@router.post("/run", response_model=list[dict[str, Any]], responses=responses(500))
async def adk_run(
    new: AdkRunRequest,
    request: Request,
    caller: AnyCaller,
    served: Served,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run the agent with a message, and return its events when the turn has ended."""
    run = await _Run.of(new, request, caller, served, idempotency_key)
    with served.streams.opening(run.user.caller, partial(recheck, request)) as slot:
        turn = await run.submit()
        answer = await answer_while_connected(request, slot, _whole(run.events(turn)))
        answer.headers.update(_headers(turn))
        return answer


@router.post("/run_sse", response_class=Response, responses=_STREAM)
async def adk_run_sse(
    new: AdkRunRequest,
    request: Request,
    caller: AnyCaller,
    served: Served,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run the agent with a message, and stream its events."""
    run = await _Run.of(new, request, caller, served, idempotency_key)
    with served.streams.opening(run.user.caller, partial(recheck, request)) as slot:
        turn = await run.submit()
        frames = _frames(run.events(turn), partials=new.streaming)
        cut = _error_frame({"type": "ServerBusyError", "message": _CUT})
        return EventStream(slot, frames, _headers(turn), when_cut=cut)


@dataclass(frozen=True)
class _Run:
    """A run that a client asks for."""

    new: AdkRunRequest
    user: AdkUser
    admission: Admission
    turns: Turns
    message: ClientMessage
    answers: ClientAnswers | None
    idempotency_key: str | None

    @classmethod
    async def of(
        cls,
        new: AdkRunRequest,
        request: Request,
        caller: AnyCaller,
        served: Served,
        idempotency_key: str | None,
    ) -> _Run:
        """The run of a request, for a user whom the caller may act for."""
        if new.app_name is None:
            raise HTTPException(400, "app_name is required")
        user = adk_user(request, served, caller, new.app_name, new.user_id)
        _check(new)
        if not user.app_state:
            check_state(new.state_delta)
        message = read_message(new.new_message or {}, served.options.files)
        answers = None
        if message.responses:
            answers = read_answers(message, await user.sessions.history(new.session_id))
        elif new.invocation_id is not None:
            raise UnsupportedRequestError(
                "invocationId is for the answer to a call. A turn that lost its process is resumed "
                "without a request."
            )
        admission = Admission(request, user.caller, served, data=message.size)
        turns = served.backend.turns_for(user.caller.tenant)
        return cls(new, user, admission, turns, message, answers, idempotency_key)

    async def submit(self) -> Turn:
        """Submit the message, or the answers, as a turn."""
        caller = self.user.caller
        common: dict[str, Any] = {
            "idempotency_key": self.idempotency_key,
            "key_id": caller.key_id,
            "cost_limit": caller.limits.cost,
            "turn_limit": caller.limits.turns,
            "admit": self.admission.take,
        }
        if self.answers is not None:
            return await self._answer(self.answers, common)
        state = self.new.state_delta
        try:
            return await self.turns.submit(
                self.user.app,
                self.message.text,
                parts=self.message.parts,
                user=caller.user,
                session=self.new.session_id,
                options={"state": state} if state else None,
                create=False,
                **common,
            )
        except SessionNotFoundError:
            detail = f"Session not found: {self.new.session_id}"
            raise HTTPException(404, detail) from None

    async def _answer(self, answers: ClientAnswers, common: dict[str, Any]) -> Turn:
        state = self.new.state_delta
        if answers.is_result and not state:
            (only,) = answers.answers
            return await self.turns.deliver(
                answers.invocation_id, only.call_id, only.payload, **common
            )
        return await self.turns.answer(
            answers.invocation_id,
            answers.answers,
            state=state,
            **common,
        )

    def events(self, turn: Turn) -> AdkEvents:
        """The events of the turn."""
        store = self.user.served.store
        return AdkEvents(store, self.turns, turn, app_state=self.user.app_state)


def _check(new: AdkRunRequest) -> None:
    """Refuse options that a turn would silently ignore."""
    for name, alias in _UNSUPPORTED.items():
        if getattr(new, name) is not None:
            raise UnsupportedRequestError(f"{alias} is not supported: leave it out.")


def _headers(turn: Turn) -> dict[str, str]:
    return {"Lango-Turn": turn.id}


async def _whole(events: AdkEvents) -> Response:
    """All events of a turn, after it has ended."""
    read = [event async for event in events.read(partials=False)]
    if events.error is not None:
        return respond(500, failure(events.error))
    return JSONResponse(read)


async def _frames(events: AdkEvents, *, partials: bool) -> AsyncGenerator[bytes]:
    try:
        async for event in events.read(partials=partials):
            for client_event in as_sent(event):
                yield _frame(client_event)
    except TurnNotFoundError:
        yield _error_frame({"type": "SessionNotFoundError", "message": _DELETED})
        return
    if events.error is not None:
        yield _error_frame(events.error)


def _error_frame(error: JsonObject) -> bytes:
    """A turn's error as ADK's server streams one."""
    details = {
        "error_type": error["type"],
        "error_message": error["message"],
        "timestamp": time.time(),
    }
    return _frame({"error": failure(error), "error_details": details})


def _frame(data: JsonObject) -> bytes:
    return f"data: {json_text(data)}\n\n".encode()
