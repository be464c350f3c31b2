"""Runs a tool: in a thread if it would block the event loop, and within its timeout."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any

from lango.core.values import JsonObject
from lango.errors import ToolTimeoutError
from lango.tools.base import CallInfo, Tool
from lango.tools.thread_slots import thread_slots


async def call(tool: Tool, arguments: JsonObject, info: CallInfo) -> Any:
    """The tool's result for checked arguments."""
    limit = asyncio.timeout(tool.timeout)
    try:
        async with limit:
            return await _run(tool, arguments, info)
    except TimeoutError as error:
        if not limit.expired():  # raised inside the tool
            raise
        raise ToolTimeoutError(f"{tool.name} did not finish in {tool.timeout:g} s.") from error


async def _run(tool: Tool, arguments: JsonObject, info: CallInfo) -> Any:
    if inspect.iscoroutinefunction(tool.run):
        return await tool.run(arguments, info)
    result = await in_thread(lambda: tool.run(arguments, info))
    if inspect.isawaitable(result):  # a lambda or partial around an async function
        return await result
    return result


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread with this task's context variables, and return its result.

    The threads are daemons, unlike those of an executor: work that hangs is abandoned at its
    timeout, keeps its slot, and does not prevent the process from exiting.
    """
    loop = asyncio.get_running_loop()
    slots = thread_slots()
    tenant = await slots.acquire()
    outcome: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        slots.release(tenant)
        if outcome.done():  # the caller no longer waits
            return
        if error is None:
            outcome.set_result(result)
        elif isinstance(error, StopIteration):  # a future cannot hold it
            outcome.set_exception(RuntimeError("the tool raised StopIteration"))
        else:
            outcome.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop is closed, so no caller waits

    try:
        threading.Thread(target=run, name="lango-tool", daemon=True).start()
    except BaseException:
        slots.release(tenant)
        raise
    return await outcome
