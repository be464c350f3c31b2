"""An id for every request, and a line in the access log for every answer."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lango.core.current import request_id
from lango.core.ids import new_id
from lango.server.auth.callers import Caller
from lango.telemetry.logs import FIELDS
from lango.telemetry.metrics.switch import metrics

if TYPE_CHECKING:
    from lango.telemetry.metrics.recorder import Recorder

logger = logging.getLogger("lango.access")

HEADER: Final = "X-Request-ID"
_LINE: Final = "%s %s %s %d %d B %d ms %s"
_USABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class AccessLog:
    """Middleware that gives each request an id (a gateway's or a new one) and logs it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, add its id to the answer, and log it after the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answered = _Answered(scope)
        before = request_id.set(answered.id)

        async def observed_send(message: Message) -> None:
            answered.see(message)
            await send(message)

        try:
            await self.app(scope, receive, observed_send)
        finally:
            answered.log()
            request_id.reset(before)


class _Answered:
    """What the access log says of one request."""

    def __init__(self, scope: Scope) -> None:
        sent_id = Headers(scope=scope).get(HEADER, "")
        self.id = sent_id if _USABLE.fullmatch(sent_id) else new_id("req")
        self._scope = scope
        self._state: dict[str, Any] = scope.setdefault("state", {})
        self._began = time.monotonic()
        self._status = 0  # stays 0 if the client disconnects before the answer
        self._answered: float | None = None  # when the answer began
        self._bytes = 0

    def see(self, message: Message) -> None:
        """Record the status or the size of a part of the answer, and add the id to its head."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._answered = time.monotonic()
            MutableHeaders(scope=message)[HEADER] = self.id
        else:
            self._bytes += len(message.get("body", b""))

    @property
    def _key(self) -> str:
        """The id of the API key, or of the token's user."""
        caller: Caller | None = self._state.get("caller")
        return caller.key_id if caller else "-"

    def log(self) -> None:
        """Write the line, without the query string, which may hold secrets; and measure."""
        if metrics.recorder is not None:
            self._measure(metrics.recorder)
        if logger.isEnabledFor(logging.INFO):
            client = self._scope.get("client")
            _log(
                client=client[0] if client else "-",
                method=self._scope["method"],
                path=quote(self._scope["path"]),
                status=self._status,
                bytes=self._bytes,
                ms=round(1_000 * (time.monotonic() - self._began)),
                key=self._key,
            )

    def _measure(self, recorder: Recorder) -> None:
        route: Any = self._scope.get("route")  # the router sets it
        took = None if self._answered is None else self._answered - self._began
        template = getattr(route, "path", None)
        recorder.request_answered(template, self._scope["method"], self._status, took)


def _log(**fields: str | int) -> None:
    """Write a line; a program that reads JSON gets its parts as fields, too."""
    logger.info(_LINE, *fields.values(), extra={FIELDS: fields})


def log_refusal(client: str | None, status: int, seconds: float) -> str:
    """Log the answer to a request whose head could not be read, and return its new id."""
    if metrics.recorder is not None:
        metrics.recorder.request_answered(None, "", status, seconds)
    refused_id = new_id("req")
    before = request_id.set(refused_id)
    try:
        ms = round(1_000 * seconds)
        _log(client=client or "-", method="-", path="-", status=status, bytes=0, ms=ms, key="-")
    finally:
        request_id.reset(before)
    return refused_id
