"""Limits how many requests start in one pass of the event loop, so that other tasks can run."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.providers.policy.loop_throttle import LoopThrottle


class RequestThrottle:
    """Middleware whose requests start through a turnstile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turnstile = LoopThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as soon as the turnstile allows."""
        await self._turnstile.enter()
        await self._app(scope, receive, send)
