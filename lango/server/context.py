"""What the model calls of a session saw."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from lango.errors import ModelCallNotFoundError
from lango.insight.context import TEXT_ROOM, SessionContext
from lango.insight.context_reader import ContextReader
from lango.server.backend import Served
from lango.server.callers import SECURED
from lango.server.problems import responses
from lango.server.sessions import OUR_ID, SeenSession

router = APIRouter(
    prefix="/v1/sessions",
    tags=["sessions"],
    dependencies=SECURED,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)

MOST_CHARACTERS: Final = 1_000_000


@router.get("/{session_id}/context")
async def get_context(
    session: SeenSession,
    served: Served,
    call: Annotated[
        str | None, Query(description="The id of a model call; else the newest.")
    ] = None,
    characters: Annotated[
        int, Query(ge=0, le=MOST_CHARACTERS, description="How much of each text is shown.")
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
