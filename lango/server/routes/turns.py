"""Turns: submit, get, subscribe to events, cancel, retry, answer. Any server serves any turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, status

from lango.core.turns.events import Answer
from lango.core.turns.positions import Position
from lango.core.turns.states import TurnState
from lango.errors import TurnNotFoundError
from lango.server.auth.callers import SECURED, AnyCaller, ListViewer, User, Viewer, recheck
from lango.server.auth.limits import Admission, Admitting, admit_turn
from lango.server.backend import EndpointServices, Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.http.streams import MEDIA_TYPE, EventStream, StreamSlot, frames
from lango.server.routes.schemas import (
    EventId,
    Id,
    IdempotencyKey,
    NewApproval,
    NewResult,
    RequiredCredential,
    TurnDetail,
    TurnInfo,
    TurnListPage,
    TurnPage,
    TurnRequest,
)
from lango.server.routes.sessions import (
    OUR_ID,
    OwnSession,
    PageSize,
    SeenSession,
    SequenceNumber,
    Since,
    Until,
)
from lango.store.sessions.listing import SessionSummary
from lango.store.turns.listing import TurnFilter
from lango.store.turns.rows import Turn
from lango.turns.service import Turns

router = APIRouter(
    prefix="/v1",
    tags=["turns"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)

_STREAM: Final[dict[str, Any]] = {
    "description": "The events of the turn, from `accepted` to its end.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}
_ACCEPTING: Final[dict[str, Any]] = {
    "status_code": status.HTTP_202_ACCEPTED,
    "response_model": TurnInfo,
    "responses": {200: _STREAM, **responses(400, 409, 413, 415)},
}
Thoughts = Annotated[bool, Query(description="Whether to send `thought.delta` as well.")]


TurnId = Annotated[str, Path(description="The turn's `id`.")]


async def tenants_turns(viewer: Viewer, served: Served) -> Turns:
    """The turns of the caller's tenant."""
    return served.backend.turns_for(viewer.tenant)


TenantsTurns = Annotated[Turns, Depends(tenants_turns)]


async def own_turn(turn_id: TurnId, user: User, turns: TenantsTurns) -> Turn:
    """The turn in the path; TurnNotFoundError if missing or another user's."""
    return await _find(turns, turn_id, user.user)


async def seen_turn(turn_id: TurnId, viewer: Viewer, turns: TenantsTurns) -> Turn:
    """The turn in the path; TurnNotFoundError if missing or not visible to the caller."""
    return await _find(turns, turn_id, viewer.user)


async def _find(turns: Turns, turn_id: str, user: str | None) -> Turn:
    if not OUR_ID.fullmatch(turn_id):
        raise TurnNotFoundError
    turn = await turns.get(turn_id)
    if user not in (None, turn.session.user_id):
        raise TurnNotFoundError
    return turn


async def requested_slot(
    request: Request, served: Served, caller: AnyCaller
) -> AbstractContextManager[StreamSlot | None]:
    """Reserve a stream slot if Accept is text/event-stream, before the turn is accepted."""
    is_stream = MEDIA_TYPE in request.headers.get("accept", "")
    return served.streams.opening(caller, partial(recheck, request)) if is_stream else nullcontext()


RequestedSlot = Annotated[AbstractContextManager[StreamSlot | None], Depends(requested_slot)]
OwnTurn = Annotated[Turn, Depends(own_turn)]
SeenTurn = Annotated[Turn, Depends(seen_turn)]


@router.post("/sessions/{session_id}/turns", **_ACCEPTING)
async def submit_turn(
    new: TurnRequest,
    session: OwnSession,
    admission: Admitting,
    turns: TenantsTurns,
    requested_slot: RequestedSlot,
    idempotency_key: IdempotencyKey = None,
    thoughts: Thoughts = False,
) -> Response:
    """Submit a message. Returns the turn, or its events if `Accept` is `text/event-stream`."""
    with requested_slot as slot:
        turn = await turns.submit(
            session.app_name,
            new.message,
            files=new.files,
            user=session.user_id,
            session=session.id,
            idempotency_key=idempotency_key,
            busy=new.busy,
            run_at=new.run_at,
            create=False,
            key_id=admission.user.key_id,
            cost_limit=admission.user.limits.cost,
            turn_limit=admission.user.limits.turns,
            public_id=session.public_id,
            admit=admission.take,
        )
        return _accepted(turn, session, turns, slot, thoughts=thoughts)


@router.get("/sessions/{session_id}/turns")
async def list_turns(
    session: SeenSession, turns: TenantsTurns, before: SequenceNumber = None, limit: PageSize = 50
) -> TurnPage:
    """A page of a session's turns, the newest first."""
    session_turns = await turns.of_session(
        session.app_name, user=session.user_id, session=session.id, before=before, limit=limit + 1
    )
    page = session_turns[:limit]
    before_number = page[-1].number if len(session_turns) > limit else None
    return TurnPage(
        turns=[TurnInfo.of(turn, session.public_id) for turn in page], before=before_number
    )


@router.get("/turns")
async def list_all_turns(
    viewer: ListViewer,
    turns: TenantsTurns,
    app: Annotated[Id | None, Query(description="Filter by agent.")] = None,
    state: Annotated[TurnState | None, Query(description="Filter by state.")] = None,
    since: Since = None,
    until: Until = None,
    cursor: Annotated[Id | None, Query(description="`next` of a page.")] = None,
    limit: PageSize = 50,
) -> TurnListPage:
    """A page of the user's turns, the newest first; an admin can list other users' too."""
    turn_filter = TurnFilter(app=app, user=viewer.user, state=state, since=since, until=until)
    return TurnListPage.of(await turns.list(turn_filter, cursor=cursor, limit=limit))


@router.get("/turns/{turn_id}")
async def get_turn(turn: SeenTurn, turns: TenantsTurns, served: Served) -> TurnDetail:
    """The current state of a turn, and its answer once it has completed."""
    info = TurnInfo.of(turn, (await served.store.summary(turn.session)).public_id)
    required = await turns.required_credentials(turn)
    return TurnDetail(
        **info.model_dump(),
        text=await turns.answer_text(turn),
        credentials=[RequiredCredential.of(request) for request in required],
    )


@router.get(
    "/turns/{turn_id}/events",
    response_class=Response,
    responses={
        200: _STREAM,
        204: {"description": "All events have been read: there is nothing to come back for."},
    },
)
async def read_events(
    request: Request,
    turn: SeenTurn,
    turns: TenantsTurns,
    served: Served,
    caller: AnyCaller,
    after: Annotated[EventId | None, Query()] = None,
    last_event_id: Annotated[EventId | None, Header()] = None,
    thoughts: Thoughts = False,
) -> Response:
    """Stream the events after one that the client has as they come, until the turn's end."""
    position = Position.parse((last_event_id if after is None else after) or "0")
    if turn.ended is not None and position.number >= turn.last_event:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    with served.streams.opening(caller, partial(recheck, request)) as slot:
        events = turns.events(turn, after=position)
        return EventStream(slot, frames(turn.id, events, thoughts=thoughts))


@router.post("/turns/{turn_id}/cancel")
async def cancel_turn(turn: SeenTurn, turns: TenantsTurns, served: Served) -> TurnInfo:
    """Cancel a turn: ends it if it has not begun, asks it to stop if it runs."""
    cancelled = await turns.cancel(turn.id)
    return TurnInfo.of(cancelled, (await served.store.summary(turn.session)).public_id)


@router.post("/turns/{turn_id}/retry", **_ACCEPTING)
async def retry_turn(
    request: Request,
    turn: SeenTurn,
    caller: AnyCaller,
    turns: TenantsTurns,
    served: Served,
    requested_slot: RequestedSlot,
    thoughts: Thoughts = False,
) -> Response:
    """Submit the message of a failed or cancelled turn again, as a new turn of the same user."""
    session = await served.store.summary(turn.session)
    with requested_slot as slot:
        retried = await turns.retry(turn.id, admit=partial(admit_turn, request, caller, served))
        return _accepted(retried, session, turns, slot, thoughts=thoughts)


@dataclass(frozen=True)
class TurnContinuation:
    """Answers a waiting turn by a new turn, under the caller's limits."""

    turn: Turn
    admission: Admission
    turns: Turns
    served: EndpointServices
    requested_slot: AbstractContextManager[StreamSlot | None]
    idempotency_key: str | None
    thoughts: bool

    async def by(self, submit: Callable[..., Awaitable[Turn]], *arguments: Any) -> Response:
        """Submit the answer that the turn waits for."""
        session = await self.served.store.summary(self.turn.session)
        user = self.admission.user
        with self.requested_slot as slot:
            new_turn = await submit(
                self.turn.id,
                *arguments,
                idempotency_key=self.idempotency_key,
                key_id=user.key_id,
                cost_limit=user.limits.cost,
                turn_limit=user.limits.turns,
                admit=self.admission.take,
            )
            return _accepted(new_turn, session, self.turns, slot, thoughts=self.thoughts)


async def continuation(
    turn: OwnTurn,
    admission: Admitting,
    turns: TenantsTurns,
    served: Served,
    requested_slot: RequestedSlot,
    idempotency_key: IdempotencyKey = None,
    thoughts: Thoughts = False,
) -> TurnContinuation:
    """How this request continues the turn in its path."""
    return TurnContinuation(
        turn, admission, turns, served, requested_slot, idempotency_key, thoughts
    )


Continuing = Annotated[TurnContinuation, Depends(continuation)]


@router.post("/turns/{turn_id}/approvals", **_ACCEPTING)
async def answer_approval(
    new: NewApproval, turns: TenantsTurns, continuation: Continuing
) -> Response:
    """Answer an approval or a credential request. The answer is a new turn, which continues it."""
    return await continuation.by(turns.answer, Answer(new.call, new.approved, new.payload))


@router.post("/turns/{turn_id}/results", **_ACCEPTING)
async def deliver_result(new: NewResult, turns: TenantsTurns, continuation: Continuing) -> Response:
    """Deliver the result of a long-running call. It is a new turn, which continues the old one."""
    return await continuation.by(turns.deliver, new.call, new.result)


def _accepted(
    turn: Turn, session: SessionSummary, turns: Turns, slot: StreamSlot | None, *, thoughts: bool
) -> Response:
    """The response to a submission: the turn, or its events from the first."""
    headers = {"Location": f"{router.prefix}/turns/{turn.id}"}
    if slot is not None:
        return EventStream(slot, frames(turn.id, turns.events(turn), thoughts=thoughts), headers)
    body = TurnInfo.of(turn, session.public_id).model_dump_json()
    return Response(body, status.HTTP_202_ACCEPTED, headers, "application/json")
