"""Turns an SDK's chunks into stream events through a decoder, for every provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from lango.core.extras import install
from lango.core.messages.streams import StreamEvent, StreamEventError
from lango.errors import BadRequestError, MissingExtraError, ModelError
from lango.providers.policy.timeouts import Timeouts, Watch
from lango.providers.shared.assembly import Assembly
from lango.providers.shared.errors import of_invalid_stream, of_transport

Chunk = TypeVar("Chunk")
Chunk_contra = TypeVar("Chunk_contra", contravariant=True)

AFTERWORD: Final = 5.0
"""Seconds to wait after the finish marker for usage and the end of the stream."""


class Decoder(Protocol[Chunk_contra]):
    """Turns one answer's chunks into events, without I/O."""

    @property
    def answer(self) -> Assembly:
        """The answer so far."""
        ...

    def feed(self, chunk: Chunk_contra) -> Iterable[StreamEvent]:
        """The events in a chunk; BadStreamError if the chunk is invalid."""
        ...

    def finish(self) -> Iterable[StreamEvent]:
        """The last events; BadStreamError if the answer is incomplete."""
        ...


async def decoded(
    call: Callable[[], Awaitable[AsyncIterator[Chunk]]],
    decoder: Decoder[Chunk],
    explain: Callable[[Exception], ModelError | None],
    timeouts: Timeouts,
) -> AsyncGenerator[StreamEvent, None]:
    """The events of one answer; an error becomes the last of them.

    After the finish marker the answer is complete, and further faults are ignored.
    """
    answer = decoder.answer
    stream: AsyncIterator[Chunk] | None = None
    watch = Watch(idle=timeouts.idle)
    try:
        try:
            opening = call()  # outside the watch: an SDK's first use may be slow
            with watch:
                stream = await opening
            while not answer.over:
                with watch:
                    chunk = await anext(stream)
                for event in decoder.feed(chunk):
                    yield event
                if answer.finish is not None:
                    watch.shorten(AFTERWORD)
        except StopAsyncIteration:
            pass
        except Exception:
            if answer.finish is None:
                raise
        for event in decoder.finish():
            yield event
    except Exception as error:  # noqa: BLE001 - an SDK may raise anything; it is the last event
        yield StreamEventError(_typed(error, explain, answer, opened=stream is not None))
    finally:
        watch.close()
        await _close(stream)


def _typed(
    error: Exception,
    explain: Callable[[Exception], ModelError | None],
    answer: Assembly,
    *,
    opened: bool,
) -> ModelError:
    typed = error if isinstance(error, ModelError) else explain(error) or of_transport(error)
    if typed is None:
        # An unknown error before the stream opened: the SDK refused the arguments.
        typed = (
            of_invalid_stream(error)
            if opened
            else BadRequestError(f"{type(error).__name__}: {error}")
        )
    if typed is not error:
        typed.__cause__ = error
    typed.provider, typed.model = answer.provider, answer.model
    typed.request_id = typed.request_id or answer.request_id
    typed.partial_text = answer.text
    return typed


async def _close(stream: Any) -> None:
    """Release the connection, even if the answer was not read to its end."""
    close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
    if close is not None:
        with suppress(Exception):
            await close()


def missing(extra: str) -> MissingExtraError:
    """The error for a vendor's SDK that is not installed."""
    return MissingExtraError(f"This provider needs an SDK: {install(extra)}")
