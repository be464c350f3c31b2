"""Limits how many requests start in one pass of the event loop, so that other tasks can run."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.providers.policy.loop_throttle import LoopThrottle


class RequestThrottle:
    """Middleware that lets a limited number of requests start per pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._throttle = LoopThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on when it may start."""
        await self._throttle.enter()
        await self._app(scope, receive, send)
