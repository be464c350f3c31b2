"""Routes that answer exceptions in the form of another API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from lango.server.http.bodies import JsonRoute


class AnsweringRoute(JsonRoute, ABC):
    """A route that answers all exceptions itself: its clients read one form only."""

    @abstractmethod
    def answer(self, error: Exception, scope: Scope) -> Response:
        """The answer to a request that ended in an exception."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, which answers exceptions."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientDisconnect:  # no client is left to answer; the middleware logs it
                raise
            except Exception as error:  # noqa: BLE001 - the client reads one form only
                return self.answer(error, request.scope)

        return answered
