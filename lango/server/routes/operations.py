"""The work of a tenant, for its operators: load, workers, failed turns, calls that wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from lango.core.insight import Workload
from lango.insight.operations import FAILED_WITHIN
from lango.server.auth.callers import SECURED, Admin
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import ApprovalList, FailureList, Id, WorkerInfo, WorkerList
from lango.server.routes.sessions import PageSize, Since
from lango.store.insight.failures import read_failures
from lango.store.insight.waiting import read_waiting
from lango.store.insight.workers import read_workers
from lango.store.insight.workload import read_workload

router = APIRouter(
    prefix="/v1",
    tags=["operations"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 421, 422, 429, 503),
)
AppFilter = Annotated[Id | None, Query(description="Filter by agent.")]


@router.get("/workload")
async def get_workload(admin: Admin, served: Served) -> Workload:
    """The tenant's waiting and running turns, and the live workers. Needs the scope `admin`."""
    return await read_workload(served.store.database, admin.tenant)


@router.get("/workers")
async def list_workers(admin: Admin, served: Served) -> WorkerList:
    """The registered workers, with versions of their agents. Needs the scope `admin`."""
    workers = await read_workers(served.store.database, admin.tenant)
    return WorkerList(workers=[WorkerInfo.of(worker) for worker in workers])


@router.get("/failures")
async def list_failures(
    admin: Admin, served: Served, app: AppFilter = None, since: Since = None, limit: PageSize = 50
) -> FailureList:
    """The tenant's failed turns with their causes; by default of 24 hours. Needs `admin`."""
    failures = await read_failures(
        served.store.database,
        since or datetime.now(UTC) - FAILED_WITHIN,
        tenant=admin.tenant,
        app=app,
        limit=limit + 1,
    )
    return FailureList(failures=failures[:limit], more=len(failures) > limit)


@router.get("/approvals")
async def list_approvals(
    admin: Admin, served: Served, app: AppFilter = None, limit: PageSize = 50
) -> ApprovalList:
    """The tenant's calls that wait for an answer, over all sessions. Needs the scope `admin`."""
    turns = await read_waiting(served.store.database, admin.tenant, app=app, limit=limit + 1)
    return ApprovalList(turns=turns[:limit], more=len(turns) > limit)
