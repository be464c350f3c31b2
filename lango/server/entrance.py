"""Requests begin a few at a time, however many come at once: others have their turn between."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.providers.turnstile import Turnstile


class Entrance:
    """An application whose requests come in through a turnstile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turnstile = Turnstile()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on when it is its turn."""
        await self._turnstile.enter()
        await self._app(scope, receive, send)
