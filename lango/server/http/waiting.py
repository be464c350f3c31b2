"""Answers that a request waits for: until its client disconnects, or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from fastapi import Request, Response

from lango.errors import ServerBusyError
from lango.server.http.request_slots import release_slot
from lango.server.http.streams import StreamSlot

_GONE: Final = 499  # only for the access log: the client has disconnected


async def answer_while_connected(
    request: Request, slot: StreamSlot, work: Coroutine[Any, Any, Response]
) -> Response:
    """Wait for an answer, until the client disconnects or the server stops."""
    release_slot(request)
    waiting, disconnection = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    slot.run(waiting)
    try:
        await asyncio.wait({waiting, disconnection}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            return Response(status_code=_GONE)
        if waiting.cancelled():
            raise ServerBusyError
        return waiting.result()
    finally:
        slot.leave()
        for task in (waiting, disconnection):
            task.cancel()
        await asyncio.wait({waiting, disconnection})


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
