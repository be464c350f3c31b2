"""A model server on loopback that sends scripted replies in a vendor's protocol."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from lango.core.values import JsonObject
from lango.providers.base import Provider
from lango.providers.policy.retry import close_provider
from lango.providers.policy.timeouts import Timeouts
from lango.testing.wires.anthropic import AnthropicWire
from lango.testing.wires.gemini import GeminiWire
from lango.testing.wires.http import HttpReply, HttpRequest, HttpServer
from lango.testing.wires.openai_chat import OpenAIChatWire
from lango.testing.wires.openai_responses import OpenAIResponsesWire
from lango.testing.wires.rules import Problems
from lango.testing.wires.script import Broken, Frame, Refusal, Reply, ScriptedAnswer

_SSE: Final = "text/event-stream; charset=utf-8"
_HTML: Final = b"<!DOCTYPE html>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n"
_KEY: Final = "test-key"


class Wire(Protocol):
    """The protocol of one vendor's server."""

    @property
    def name(self) -> str:
        """The name of the API."""
        ...

    @property
    def base(self) -> str:
        """The path of the SDK's base URL."""
        ...

    @property
    def path(self) -> str:
        """A pattern of the paths that it serves."""
        ...

    @property
    def request_id_header(self) -> str:
        """The response header with the request id."""
        ...

    def frames(self, answer: ScriptedAnswer, model: str) -> list[Frame]:
        """An answer as the vendor streams it."""
        ...

    def empty(self, model: str) -> bytes:
        """An empty frame."""
        ...

    def error_frame(self) -> bytes:
        """An error within an answer."""
        ...

    def refusal(self, refusal: Refusal, message: str = "") -> tuple[int, bytes]:
        """Status and body of an error."""
        ...

    def problems(self, request: HttpRequest, body: JsonObject) -> Problems:
        """What the vendor would refuse in the request."""
        ...


WIRES: Final[dict[str, Wire]] = {
    wire.name: wire
    for wire in (OpenAIChatWire(), OpenAIResponsesWire(), AnthropicWire(), GeminiWire())
}


@dataclass(frozen=True, slots=True)
class Received:
    """A request that a server received."""

    path: str
    headers: dict[str, str]
    body: JsonObject


class WireServer:
    """Serves one provider API, and refuses the requests that the vendor refuses.

    Replies are sent in order; the last one repeats. `piece` is the number of bytes per write, so
    that frames are split anywhere; 0 sends an answer in one piece.
    """

    def __init__(self, wire: str, *replies: Reply, piece: int = 0) -> None:
        self.wire = WIRES[wire]
        self.requests: list[Received] = []
        self.refused: list[str] = []
        """The faults of the requests that it received."""
        self._piece = piece
        self._replies: deque[Reply] = deque(replies or (ScriptedAnswer("Hello."),))
        self._http = HttpServer(self._handle)
        self._providers: list[Provider] = []

    async def __aenter__(self) -> WireServer:
        await self._http.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for provider in self._providers:
            await close_provider(provider)
        await self._http.stop()

    @property
    def url(self) -> str:
        """The base URL for the vendor's SDK."""
        return self._http.url + self.wire.base

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return self._http.connections

    async def left(self) -> None:
        """Wait until every currently connected client has disconnected."""
        await self._http.left()

    def say(self, *replies: Reply) -> None:
        """Set the replies from now on."""
        self._replies = deque(replies)

    def provider(self, timeouts: Timeouts | None = None) -> Provider:
        """lango's provider for this API, connected to this server and closed with it."""
        provider = provider_of(self.wire.name, self.url, timeouts)
        self._providers.append(provider)
        return provider

    async def _handle(self, request: HttpRequest) -> HttpReply:
        headers = {self.wire.request_id_header: f"req_{len(self.requests) + 1}"}
        if request.method != "POST" or not re.fullmatch(self.wire.path, request.path):
            return self._refuse(Refusal("no_model"), headers, f"no {request.path} here")
        body = _object(request.body)
        self.requests.append(Received(request.target, dict(request.headers), body))
        problems = self.wire.problems(request, body)
        if problems:
            self.refused += problems
            return self._refuse(Refusal("bad_request"), headers, "; ".join(problems))
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Refusal):
            return self._refuse(reply, headers)
        return self._answer(reply, headers, _model(request, body))

    def _refuse(self, refusal: Refusal, headers: dict[str, str], message: str = "") -> HttpReply:
        status, body = self.wire.refusal(refusal, message)
        headers = {**headers, "content-type": "application/json"}
        if refusal.retry_after:
            headers["retry-after"] = refusal.retry_after
        return HttpReply(status, headers, _pieces([body]))

    def _answer(
        self, reply: ScriptedAnswer | Broken, headers: dict[str, str], model: str
    ) -> HttpReply:
        headers = {**headers, "content-type": _SSE}
        if isinstance(reply, ScriptedAnswer):
            data = b"".join(frame.data for frame in self.wire.frames(reply, model))
            return HttpReply(200, headers, _pieces([data], self._piece))
        if reply.fault == "html":
            headers["content-type"] = "text/html"
        data = broken(self.wire, reply, model)
        stalls = reply.fault == "stall"
        body = _pieces([data], self._piece, forever=stalls)
        return HttpReply(200, headers, body, cut=reply.fault == "cut")


def broken(wire: Wire, reply: Broken, model: str) -> bytes:
    """The bytes of a broken answer."""
    frames = wire.frames(reply.answer, model)
    answer = b"".join(frame.data for frame in frames)
    half = answer[: len(answer) // 2 if reply.at < 0 else reply.at]
    match reply.fault:
        case "zero_bytes":
            return b""
        case "html":
            return _HTML
        case "empty":
            return wire.empty(model) * 2
        case "no_finish":
            return b"".join(frame.data for frame in frames if not frame.finish)
        case "error":
            data = [frame.data for frame in frames if not frame.finish]
            return b"".join(data[: len(data) // 2 + 1]) + wire.error_frame()
        case "half_call":
            return _half_call(wire, frames)
        case "cut" | "stall":
            return half


def _half_call(wire: Wire, frames: Sequence[Frame]) -> bytes:
    """The answer up to a call's first frame; for Gemini, which has one per call, half of it."""
    first = next(number for number, frame in enumerate(frames) if frame.opens_call)
    before = b"".join(frame.data for frame in frames[:first])
    opening = frames[first].data
    return before + (opening[: len(opening) // 2] if wire.name == "gemini" else opening)


async def _pieces(
    data: Iterable[bytes], size: int = 0, *, forever: bool = False
) -> AsyncIterator[bytes]:
    for chunk in data:
        step = size or len(chunk) or 1
        for start in range(0, len(chunk), step):
            yield chunk[start : start + step]
            await asyncio.sleep(0)
    if forever:
        await asyncio.Event().wait()


def _model(request: HttpRequest, body: JsonObject) -> str:
    """The requested model: from the body or, for Gemini, from the path."""
    in_path = re.search(r"/models/([^:/]+)", request.path)
    return str(body.get("model") or (in_path[1] if in_path else ""))


def _object(body: bytes) -> JsonObject:
    value: Any = json.loads(body or b"{}")
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def provider_of(wire: str, url: str, timeouts: Timeouts | None = None) -> Provider:
    """lango's provider for an API, at an address."""
    if wire == "openai_chat":
        from lango.providers.openai_chat import OpenAIChatProvider

        return OpenAIChatProvider(api_key=_KEY, base_url=url, timeouts=timeouts)
    if wire == "openai_responses":
        from lango.providers.openai_responses import OpenAIResponsesProvider

        return OpenAIResponsesProvider(api_key=_KEY, base_url=url, timeouts=timeouts)
    if wire == "anthropic":
        from lango.providers.anthropic import AnthropicProvider

        return AnthropicProvider(api_key=_KEY, base_url=url, timeouts=timeouts)
    from lango.providers.gemini import GeminiProvider

    return GeminiProvider(api_key=_KEY, base_url=url, timeouts=timeouts)
