"""Headers of every JSON answer: caches do not store it, and browsers do not guess its type."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_JSON: Final = ("application/json", "application/problem+json")
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class JsonHeaders:
    """Middleware that adds these headers to JSON answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its answer."""

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith(_JSON):
                    for name, value in _HEADERS.items():
                        headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, add)
