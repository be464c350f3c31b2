"""The timeline of a turn."""

from __future__ import annotations

from fastapi import APIRouter

from lango.insight.timeline import Timeline, read_timeline
from lango.server.backend import Served
from lango.server.callers import SECURED
from lango.server.problems import responses
from lango.server.turns import SeenTurn

router = APIRouter(
    prefix="/v1/turns",
    tags=["turns"],
    dependencies=SECURED,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)


@router.get("/{turn_id}/timeline")
async def get_timeline(turn: SeenTurn, served: Served) -> Timeline:
    """The turn's model calls, tools, retries and waits on one axis, with tokens and cost."""
    return await read_timeline(served.store.database, turn)
