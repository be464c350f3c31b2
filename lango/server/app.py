"""The HTTP application: a backend's routers, limits and error answers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from lango.server.adk import artifacts as adk_artifacts
from lango.server.adk import runs as adk_runs
from lango.server.adk import sessions as adk_sessions
from lango.server.adk.errors import use_adk_form
from lango.server.auth.callers import Identity
from lango.server.backend import Backend, ServerOptions, provide
from lango.server.http.headers import JsonHeaders
from lango.server.http.hosts import AllowedHosts
from lango.server.http.problems import Problem, add_problems
from lango.server.http.traces import NO_TELEMETRY
from lango.server.openai import routes as openai
from lango.server.openai.errors import use_openai_form
from lango.server.routes import (
    agents,
    credentials,
    export,
    files,
    insight,
    me,
    memory,
    operations,
    probes,
    sessions,
    turns,
    users,
)
from lango.server.routes.console import add_console

_ABOUT: Final = (
    "Sessions and turns of Google ADK agents. A turn that was accepted ends, whatever happens."
)


def create_app(backend: Backend, identity: Identity, options: ServerOptions) -> FastAPI:
    """The application; it does not open or close the backend."""
    app = FastAPI(
        title="lango",
        version=version("lango-adk"),
        summary=_ABOUT,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        telemetry=NO_TELEMETRY,
    )
    app.state.identity = identity
    provide(app, backend, options)
    for router in (
        agents.router,
        sessions.router,
        files.router,
        insight.contexts,
        export.router,
        turns.router,
        memory.router,
        insight.router,
        operations.router,
        users.router,
        me.router,
        credentials.router,
        credentials.callback,
        openai.router,
        probes.router,
    ):
        app.include_router(router)
    use_openai_form(app)
    if options.adk_routes != "off":
        add_adk_routes(app, options.adk_routes)
    add_console(app)
    app.add_middleware(AllowedHosts, allowed=options.allowed_hosts)
    add_problems(app)
    app.add_middleware(JsonHeaders)
    app.openapi = lambda: _document(app)
    return app


def add_adk_routes(app: FastAPI, path: str) -> None:
    """Serve ADK's own API below a path."""
    prefix = path.rstrip("/")
    use_adk_form(app, prefix)
    for router in (adk_sessions.router, adk_artifacts.router, adk_runs.router):
        app.include_router(router, prefix=prefix)


def _operation_id(route: APIRoute) -> str:
    return route.name


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schema of problems."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        parts = document.setdefault("components", {}).setdefault("schemas", {})
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts |= schema.pop("$defs", {})
        parts[Problem.__name__] = schema
        app.openapi_schema = document
    return app.openapi_schema
