"""Waiting and running turns, and live workers, for the admins of a tenant."""

from __future__ import annotations

from fastapi import APIRouter

from lango.core.insight import Workload
from lango.server.backend import Served
from lango.server.callers import SECURED, Admin
from lango.server.problems import responses
from lango.store.insight.workload import read_workload

router = APIRouter(
    prefix="/v1/workload",
    tags=["operations"],
    dependencies=SECURED,
    responses=responses(401, 403, 421, 429, 503),
)


@router.get("")
async def get_workload(admin: Admin, served: Served) -> Workload:
    """The tenant's waiting and running turns, and the live workers. Needs the scope `admin`."""
    return await read_workload(served.store.database, admin.tenant)
