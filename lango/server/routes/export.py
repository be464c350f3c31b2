"""Export of a session as JSON Lines."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from lango.server.auth.callers import SECURED, Viewer
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.sessions import SeenSession
from lango.store.transfer.export import SessionExport, open_export

logger = logging.getLogger(__name__)

router = APIRouter(
    prefix="/v1/sessions",
    tags=["sessions"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)

MEDIA_TYPE: Final = "application/jsonl"
_LINES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The lines of the export; one that was cut does not end with `end`.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


@router.get("/{session_id}/export", response_class=StreamingResponse, responses=_LINES)
async def export_session(session: SeenSession, viewer: Viewer, served: Served) -> StreamingResponse:
    """Export a session with its messages, states, artifacts and memory, for `lango` to import."""
    # All users of an app share its state: only callers that may see all users get it.
    database, may_see_all = served.store.database, viewer.user is None
    export = await open_export(database, session.key, with_app_state=may_see_all)
    name = f'attachment; filename="{session.public_id}.jsonl"'
    return StreamingResponse(
        _lines(export), media_type=MEDIA_TYPE, headers={"Content-Disposition": name}
    )


async def _lines(export: SessionExport) -> AsyncGenerator[bytes]:
    """The lines of an export. An error is logged, and cuts the export before its `end` line."""
    try:
        async for line in export.lines():
            yield line
    except Exception:
        logger.exception("An export ends early.")
