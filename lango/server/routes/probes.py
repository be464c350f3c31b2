"""Liveness and readiness probes, for orchestrators."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Response, status

from lango.server.backend import Backend, Served, ServerOptions, provide
from lango.server.health import Alive, Readiness, readiness
from lango.server.http.traces import NO_TELEMETRY

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def get_health() -> Alive:
    """The process is alive."""
    return Alive()


@router.get(
    "/readyz", responses={503: {"model": Readiness, "description": "Not ready, or no longer."}}
)
async def get_readiness(served: Served, response: Response) -> Readiness:
    """Whether to send requests here: checks store, schema, worker and warm-up."""
    report = await readiness(served.health, served.store)
    if not report.ready:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return report


def create_probes(backend: Backend) -> FastAPI:
    """An application with these probes, for a worker without a server."""
    app = FastAPI(openapi_url=None, telemetry=NO_TELEMETRY)
    provide(app, backend, ServerOptions())
    app.include_router(router)
    return app
