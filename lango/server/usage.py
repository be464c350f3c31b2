"""Tokens and cost of model calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError

from lango.core.insight import UsageBy, UsageReport
from lango.server.backend import Served
from lango.server.callers import SECURED, ListViewer
from lango.server.problems import responses
from lango.server.schemas import Id
from lango.server.sessions import Since, Until
from lango.store.insight.usage import UsageOf, read_usage

router = APIRouter(
    prefix="/v1/usage",
    tags=["usage"],
    dependencies=SECURED,
    responses=responses(401, 403, 421, 422, 429, 503),
)

_SPAN: Final = timedelta(days=30)
LONGEST: Final = timedelta(days=366)


@router.get("")
async def get_usage(
    viewer: ListViewer,
    served: Served,
    by: Annotated[
        list[UsageBy] | None, Query(description="What to tell apart; by default `day`.")
    ] = None,
    app: Annotated[Id | None, Query(description="Of this agent alone.")] = None,
    since: Since = None,
    until: Until = None,
) -> UsageReport:
    """Tokens and cost of the user's model calls, by default of the last 30 days."""
    until = until or datetime.now(UTC)
    since = since or until - _SPAN
    if not timedelta() <= until - since <= LONGEST:
        problem = f"`since` is before `until`, and at most {LONGEST.days} days."
        raise RequestValidationError([{"loc": ("query", "since"), "msg": problem, "type": "span"}])
    whose = UsageOf(viewer.tenant, since, until, viewer.user, app)
    return await read_usage(served.store.database, whose, by or ["day"])
