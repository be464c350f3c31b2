"""What agents did: contexts of model calls, timelines of turns, and usage."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError

from lango.core.insight import UsageBy, UsageReport
from lango.errors import ModelCallNotFoundError
from lango.insight.context import TEXT_ROOM, SessionContext
from lango.insight.context_reader import ContextReader
from lango.insight.timeline import Timeline, read_timeline
from lango.insight.usage import recent_usage
from lango.server.auth.callers import SECURED, ListViewer
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import Id
from lango.server.routes.sessions import OUR_ID, SeenSession, Since, Until
from lango.server.routes.turns import SeenTurn
from lango.store.insight.usage import read_usage

contexts = APIRouter(
    prefix="/v1/sessions", tags=["sessions"], dependencies=SECURED, route_class=JsonRoute
)
"""Apart from `router`: the OpenAPI document lists it with the other operations of a session."""
router = APIRouter(prefix="/v1", dependencies=SECURED, route_class=JsonRoute)

MAX_CHARACTERS: Final = 1_000_000
LONGEST: Final = timedelta(days=366)
_OF_ONE: Final = responses(401, 403, 404, 421, 422, 429, 503)


@contexts.get("/{session_id}/context", responses=_OF_ONE)
async def get_context(
    session: SeenSession,
    served: Served,
    call: Annotated[
        str | None, Query(description="The id of a model call; else the newest.")
    ] = None,
    characters: Annotated[
        int, Query(ge=0, le=MAX_CHARACTERS, description="How much of each text is shown.")
    ] = TEXT_ROOM,
) -> SessionContext:
    """What a model call saw and what was left out; for the newest, also a preview of the next."""
    budget = served.options.token_budget
    reader = ContextReader(served.store, session.key, text_room=characters, token_budget=budget)
    if call is None:
        return await reader.newest()
    if not OUR_ID.fullmatch(call):
        raise ModelCallNotFoundError
    return await reader.call(call)


@router.get("/turns/{turn_id}/timeline", tags=["turns"], responses=_OF_ONE)
async def get_timeline(turn: SeenTurn, served: Served) -> Timeline:
    """The turn's model calls, tools, retries and waits on one axis, with tokens and cost."""
    return await read_timeline(served.store.database, turn)


@router.get("/usage", tags=["usage"], responses=responses(401, 403, 421, 422, 429, 503))
async def get_usage(
    viewer: ListViewer,
    served: Served,
    by: Annotated[list[UsageBy] | None, Query(description="Group by these; default `day`.")] = None,
    app: Annotated[Id | None, Query(description="Filter by agent.")] = None,
    since: Since = None,
    until: Until = None,
) -> UsageReport:
    """Tokens and cost of the user's model calls, by default of the last 30 days."""
    usage_filter = recent_usage(viewer.tenant, since, until, viewer.user, app)
    if not timedelta() <= usage_filter.until - usage_filter.since <= LONGEST:
        problem = f"`since` is before `until`, and at most {LONGEST.days} days."
        raise RequestValidationError([{"loc": ("query", "since"), "msg": problem, "type": "span"}])
    return await read_usage(served.store.database, usage_filter, by or ())
