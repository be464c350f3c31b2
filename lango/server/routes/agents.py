"""The agents that are served."""

from __future__ import annotations

from fastapi import APIRouter

from lango.server.auth.callers import SECURED, AnyCaller
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import AgentInfo, AgentList

router = APIRouter(
    prefix="/v1/agents", tags=["agents"], dependencies=SECURED, route_class=JsonRoute
)


@router.get("", responses=responses(401, 403, 421, 429, 503))
async def list_agents(_: AnyCaller, served: Served) -> AgentList:
    """The agents that sessions can be created for."""
    return AgentList(agents=[AgentInfo(app=name) for name in served.options.apps])
