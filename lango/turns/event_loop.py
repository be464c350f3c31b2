"""The event loop of a serving process: uvloop's if that is installed, else asyncio's."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any, Final, NoReturn, TypeVar

from lango.telemetry.tracing.current import tracer

T = TypeVar("T")

logger = logging.getLogger(__name__)

_GRACE: Final = 5.0
"""Seconds that tasks have to end after `main`, once they are cancelled."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, with the faster loop: for long-running processes, not short commands.

    A task that ignores its cancellation does not keep the process: it ends with the exit code 0.
    """
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        result = runner.run(main)
        if not runner.run(end_tasks()):
            _leave()
        return result


async def end_tasks() -> bool:
    """Cancel all other tasks; False, with a warning, if some ignore it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    remaining = len((await asyncio.wait(tasks, timeout=_GRACE))[1]) if tasks else 0
    if remaining:
        logger.warning(
            "The process ends despite tasks that ignore their cancellation: %d.", remaining
        )
    return remaining == 0


def _leave() -> NoReturn:
    """End the process at once: asyncio would wait for its tasks without limit."""
    current = tracer()
    if current is not None:
        current.flush()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
