"""Bodies of requests: JSON of bounded size and depth, with its media type, of a known caller."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from lango.core.values import MAX_DEPTH, is_deeper, strict_json_value
from lango.errors import BodyTooLargeError, InvalidBodyError, MediaTypeError
from lango.server.auth.callers import request_caller
from lango.server.backend import services_of

_JSON: Final = "application/json"


class JsonRoute(APIRoute):
    """A route for known callers; its body, if it has one, is bounded JSON."""

    may_lack_body = False
    """Whether a request without a body is passed on, instead of being refused for its type."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, after checks of the credential and then of the body.

        It has a slot until it returns the response: a stream needs none.
        """
        handle = super().get_route_handler()
        has_body = self.body_field is not None

        async def checked(request: Request) -> Response:
            await request_caller(request)
            is_read = has_body and not (self.may_lack_body and _lacks_body(request))
            readable = await _read(request) if is_read else request
            async with services_of(request.app).slots.slot() as slot:
                request.state.slot = slot
                return await handle(readable)

        return checked


class _ReadRequest(Request):
    """A request whose body has been read and parsed."""

    def __init__(self, request: Request, body: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._read = body
        self._value = value

    async def body(self) -> bytes:
        return self._read

    async def json(self) -> Any:
        return self._value


def refuse_encodings(request: Request) -> None:
    """MediaTypeError for a compressed body: the server decompresses none."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise MediaTypeError("The body must be sent as it is, without `Content-Encoding`.")


def _lacks_body(request: Request) -> bool:
    length = request.headers.get("content-length", "0")
    return length == "0" and "transfer-encoding" not in request.headers


async def _read(request: Request) -> Request:
    refuse_encodings(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise MediaTypeError("The body must be JSON: send `Content-Type: application/json`.")
    room = services_of(request.app).options.max_body
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > room:
            raise BodyTooLargeError(f"The body is larger than the {room} bytes this server takes.")
    return _ReadRequest(request, bytes(body), _parsed(bytes(body)))


def _parsed(body: bytes) -> Any:
    try:
        value = strict_json_value(body)
    except (ValueError, RecursionError) as problem:
        raise InvalidBodyError("The body is not JSON.") from problem
    if is_deeper(value, MAX_DEPTH):
        raise InvalidBodyError(f"The body is nested deeper than {MAX_DEPTH} levels.")
    return value
