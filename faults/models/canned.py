"""Our providers on the vendors' SDKs, with canned bytes in place of a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

import anthropic
import httpx
import httpx2
import openai
from google import genai
from google.genai import types

from lango.providers.anthropic import AnthropicProvider
from lango.providers.base import Provider
from lango.providers.gemini import GeminiProvider
from lango.providers.openai_chat import OpenAIChatProvider
from lango.providers.openai_responses import OpenAIResponsesProvider

_KEY: Final = "no-key"
_URL: Final = "http://127.0.0.1:9"


@dataclass(slots=True)
class Canned:
    """The next response: its bytes, the sizes of its chunks, and how the connection ends."""

    data: bytes = b""
    sizes: tuple[int, ...] = (1 << 20,)
    media_type: str = "text/event-stream"
    breaks: bool = False  # whether the connection breaks after the bytes, or just ends
    sent: list[bytes] = field(default_factory=list[bytes])  # the requests

    @property
    def headers(self) -> dict[str, str]:
        """Of the response."""
        return {"content-type": self.media_type}

    def pieces(self) -> Iterator[bytes]:
        """The bytes as chunks."""
        at, sizes = 0, cycle(self.sizes)
        while at < len(self.data):
            size = next(sizes)
            yield self.data[at : at + size]
            at += size


class _Body(httpx.AsyncByteStream):
    def __init__(self, canned: Canned) -> None:
        self._canned = canned

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._canned.pieces():
            yield piece
        if self._canned.breaks:
            raise httpx.RemoteProtocolError("peer closed connection")


class _Body2(httpx2.AsyncByteStream):
    def __init__(self, canned: Canned) -> None:
        self._canned = canned

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._canned.pieces():
            yield piece
        if self._canned.breaks:
            raise httpx2.RemoteProtocolError("peer closed connection")


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, canned: Canned) -> None:
        self._canned = canned

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._canned.sent.append(await request.aread())
        return httpx.Response(200, headers=self._canned.headers, stream=_Body(self._canned))


class _Transport2(httpx2.AsyncBaseTransport):
    def __init__(self, canned: Canned) -> None:
        self._canned = canned

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._canned.sent.append(await request.aread())
        return httpx2.Response(200, headers=self._canned.headers, stream=_Body2(self._canned))


def openai_client(canned: Canned) -> openai.AsyncOpenAI:
    """OpenAI's SDK on canned bytes."""
    transport = httpx2.AsyncClient(transport=_Transport2(canned))
    return openai.AsyncOpenAI(api_key=_KEY, base_url=_URL, http_client=transport, max_retries=0)


def anthropic_client(canned: Canned) -> anthropic.AsyncAnthropic:
    """Anthropic's SDK on canned bytes."""
    transport = httpx.AsyncClient(transport=_Transport(canned))
    return anthropic.AsyncAnthropic(
        api_key=_KEY, base_url=_URL, http_client=transport, max_retries=0
    )


def gemini_client(canned: Canned) -> genai.Client:
    """Google's SDK on canned bytes."""
    options = types.HttpOptions(base_url=_URL, async_client_args={"transport": _Transport(canned)})
    return genai.Client(api_key=_KEY, http_options=options)


def canned_provider(wire: str, canned: Canned) -> Provider:
    """Our provider of a wire on canned bytes."""
    match wire:
        case "openai_chat":
            return OpenAIChatProvider(client=openai_client(canned))
        case "openai_responses":
            return OpenAIResponsesProvider(client=openai_client(canned))
        case "anthropic":
            return AnthropicProvider(client=anthropic_client(canned))
        case _:
            return GeminiProvider(client=gemini_client(canned))
