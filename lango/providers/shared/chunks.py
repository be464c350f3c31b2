"""Reads one answer's chunks as JSON objects from the raw response of a vendor's SDK (record 25)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from pydantic_core import from_json

from lango.core.values import JsonObject
from lango.errors import BadStreamError
from lango.providers.shared.assembly import Assembly
from lango.providers.shared.sse import EventStreamParser, ServerSentEvent

ChunkReader: TypeAlias = Callable[[bytes, bytes], JsonObject | None]
"""The chunk in an event's name and data; None if it has none. Raises an error that it reports."""

_AMAZON_EVENTS: Final = "application/vnd.amazon.eventstream"
"""The content type of Bedrock's streams, which are binary."""
_DRAIN_SECONDS: Final = 0.1  # only a connection that was read to its end can be used again


@dataclass(frozen=True, slots=True)
class ChunkFormat:
    """How a vendor's API streams chunks."""

    request_id: str  # the response header that holds it
    read: ChunkReader
    end: bytes | None = None  # data that marks the end of the stream


class ChunkStream:
    """The chunks of a streaming response; closing it releases the connection."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], form: ChunkFormat, resources: AsyncExitStack
    ) -> None:
        self._pieces = pieces
        self._read, self._end = form.read, form.end
        self._resources = resources
        self._parser = EventStreamParser()
        self._events: Iterator[ServerSentEvent] = iter(())
        self._is_first = True

    def __aiter__(self) -> ChunkStream:
        return self

    async def __anext__(self) -> JsonObject:
        while True:
            for name, data in self._events:
                if self._end is not None and data.startswith(self._end):
                    await self._drain()
                    raise StopAsyncIteration
                chunk = self._read(name, data)
                if chunk is not None:
                    return chunk
            piece = await anext(self._pieces)
            if self._is_first and (start := piece.lstrip()):
                self._is_first = False
                if start.startswith(b"{"):  # no event stream: an error, or a whole answer
                    pieces = [following async for following in self._pieces]
                    self._events = iter([(b"", b"".join((start, *pieces)))])
                    continue
            self._events = iter(self._parser.feed(piece))

    async def aclose(self) -> None:
        """Release the connection, even if the answer was not read to its end."""
        await self._resources.aclose()

    async def _drain(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._pieces:
                    pass


class SdkChunks:
    """The chunks of a response that only the SDK can parse, from the SDK's own objects."""

    def __init__(self, chunks: Any, resources: AsyncExitStack) -> None:
        self._chunks = chunks  # the SDK's stream of pydantic models
        self._resources = resources

    def __aiter__(self) -> SdkChunks:
        return self

    async def __anext__(self) -> JsonObject:
        chunk = await anext(self._chunks)
        return chunk.to_dict(warnings=False)

    async def aclose(self) -> None:
        """Release the connection, even if the answer was not read to its end."""
        await self._resources.aclose()


Chunks: TypeAlias = ChunkStream | SdkChunks
"""One answer's chunks as JSON objects."""


async def open_chunks(
    resource: Any, body: JsonObject, answer: Assembly, form: ChunkFormat
) -> Chunks:
    """Send a request through an SDK's `with_streaming_response`, which raises its errors."""
    async with AsyncExitStack() as opened:
        response = await opened.enter_async_context(resource.create(**body))
        answer.request_id = str(response.headers.get(form.request_id) or "")
        if str(response.headers.get("content-type")).startswith(_AMAZON_EVENTS):
            chunks = aiter(await response.parse())
            return SdkChunks(chunks, opened.pop_all())
        pieces = await opened.enter_async_context(aclosing(response.iter_bytes()))
        return ChunkStream(pieces, form, opened.pop_all())


def json_chunk(data: bytes) -> JsonObject:
    """The JSON object in an event's data; ValueError or BadStreamError if it is none."""
    try:
        value: Any = from_json(data, cache_strings="keys")
    except ValueError:
        # Some servers cut a character in two; only this decoder accepts half a surrogate pair.
        value = json.loads(data.decode())
    return required_object(value)


def required_object(value: Any) -> JsonObject:
    """A field that holds an object."""
    if isinstance(value, dict):
        return cast(JsonObject, value)
    raise _type_error("an object", value)


def field_object(value: Any) -> JsonObject:
    """A field that holds an object; empty if it is null, missing or PHP's empty list."""
    return required_object(value) if value else {}


def field_objects(value: Any) -> list[JsonObject]:
    """A field that holds a list of objects; empty if it is null or missing."""
    if not value:
        return []
    if not isinstance(value, list):
        raise _type_error("a list", value)
    return [required_object(item) for item in cast(list[Any], value)]


def field_text(value: Any) -> str:
    """A field that holds text; empty if it is null or missing."""
    if not value:
        return ""
    if isinstance(value, str):
        return value
    raise _type_error("text", value)


def field_key(value: Any) -> str | float | None:
    """A field that names a part of the answer, or why it ended: by a text or a number."""
    if value is None or isinstance(value, str | float | int):
        return value
    raise _type_error("a text or a number", value)


def field_label(value: Any) -> str:
    """A field that is only shown to people; empty if it is no text."""
    return value if isinstance(value, str) else ""


def field_count(value: Any) -> int:
    """A field that holds a number of tokens, which some servers send as text."""
    try:
        return int(value or 0)
    except (ValueError, TypeError, OverflowError):
        raise _type_error("a number", value) from None


def _type_error(expected: str, value: Any) -> BadStreamError:
    kind = type(value).__name__
    return BadStreamError(f"A chunk of the answer holds {kind} in place of {expected}.")
