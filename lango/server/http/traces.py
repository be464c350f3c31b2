"""A span for each request to the API, which continues the trace of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lango.server.http.access_log import HEADER
from lango.telemetry.tracing import names
from lango.telemetry.tracing.current import tracer

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""For `FastAPI(telemetry=…)`: its own spans would repeat ours. Older versions ignore it."""
_UNTRACED: Final = ("/healthz", "/readyz", "/metrics", "/console")
"""What machines ask for all the time, and the files of the console."""


class RequestTraces:
    """Middleware that traces requests; it does nothing while traces are off.

    It is around the access log, whose lines then belong to the trace.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on within its span, which ends with the answer."""
        tracing = tracer()
        if tracing is None or scope["type"] != "http" or scope["path"].startswith(_UNTRACED):
            await self.app(scope, receive, send)
            return
        status, request_id = 0, ""

        async def observed_send(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id = Headers(raw=message["headers"]).get(HEADER, "")
            await send(message)

        attributes = {
            names.SCHEME: str(scope.get("scheme", "http")),
            names.PATH: str(scope["path"]),
        }
        with tracing.request(scope["method"], Headers(scope=scope), attributes) as span:
            try:
                await self.app(scope, receive, observed_send)
            finally:
                span.answered(status, _route(scope), request_id)


def _route(scope: Scope) -> str | None:
    """The pattern of the route that has answered, which has no ids in it."""
    return cast("str | None", getattr(scope.get("route"), "path", None))
