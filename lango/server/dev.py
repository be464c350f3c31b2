"""ADK's web UI, on loopback only: it has no authentication."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.errors import ForbiddenError
from lango.server.http.hosts import LOOPBACK, AllowedHosts
from lango.server.http.problems import answer
from lango.server.listening import require_loopback
from lango.server.process import StopSignal, either, handle_signals, http_server

_TOOLS: Final = "/dev/"
_READING: Final = ("GET", "HEAD")


class ReadOnly:
    """Refuses requests that write or run something by ADK's builder, tests and deployment tools."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        is_tool = scope["type"] == "http" and scope["path"].startswith(_TOOLS)
        if is_tool and scope["method"] not in _READING:
            refusal = ForbiddenError("`lango dev` has ADK's development tools to look at only.")
            await answer(refusal, scope)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


async def serve_dev(
    app: ASGIApp,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve ADK's web UI until SIGTERM or SIGINT."""
    address = str(listening.getsockname()[0])
    require_loopback(address)
    http = http_server(AllowedHosts(ReadOnly(app), (*LOOPBACK, address)))
    stop_signal = StopSignal()
    with handle_signals(stop_signal):
        serving = asyncio.create_task(http.serve(sockets=[listening]))
        try:
            on_ready()
            await either(serving, stop_signal.requested)
        finally:
            http.should_exit = True
            await either(serving, stop_signal.immediate)
            http.force_exit = stop_signal.immediate.is_set()
            await serving
