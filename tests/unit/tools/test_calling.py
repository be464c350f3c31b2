"""Running tools: threads, time, and what they raise."""

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from lango.core.current import current_tenant
from lango.errors import Fenced, ToolTimeoutError
from lango.tools import thread_slots
from lango.tools.base import CallInfo, Tool
from lango.tools.calling import call, in_thread

INFO = CallInfo("call-1", "turn-1/call-1", "app", "user", "session")
WHO: ContextVar[str] = ContextVar("WHO")


def made(run: Any, **fields: Any) -> Tool:
    return Tool("thing", "Does it.", {"type": "object"}, run, **fields)


async def test_plain_functions_run_in_a_thread_that_knows_the_context() -> None:
    WHO.set("me")
    loops_thread = threading.get_ident()

    def run(arguments: dict[str, Any], info: CallInfo) -> tuple[bool, str, str]:
        return threading.get_ident() != loops_thread, WHO.get(), info.call_id + arguments["x"]

    assert await call(made(run), {"x": "!"}, INFO) == (True, "me", "call-1!")


async def test_async_ones_run_where_they_are_called() -> None:
    async def run(arguments: dict[str, Any], info: CallInfo) -> int:
        del arguments, info
        return threading.get_ident()

    assert await call(made(run), {}, INFO) == threading.get_ident()
    assert await call(made(partial(run)), {}, INFO) == threading.get_ident()


async def test_a_plain_function_does_not_stop_the_loop() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def run(arguments: dict[str, Any], info: CallInfo) -> str:
        del arguments, info
        begun.set()
        assert may_end.wait(10)
        return "done"

    task = asyncio.create_task(call(made(run), {}, INFO))
    await asyncio.to_thread(begun.wait, 10)  # the loop turns while the tool runs
    may_end.set()
    assert await task == "done"


async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    cancelled = asyncio.Event()

    async def run(arguments: dict[str, Any], info: CallInfo) -> None:
        del arguments, info
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ToolTimeoutError, match=r"thing did not finish in 0\.01 s"):
        await call(made(run, timeout=0.01), {}, INFO)
    assert cancelled.is_set()


async def test_a_plain_tool_that_takes_too_long_is_given_up() -> None:
    may_end = threading.Event()

    def run(arguments: dict[str, Any], info: CallInfo) -> None:
        del arguments, info
        may_end.wait(10)

    try:
        with pytest.raises(ToolTimeoutError):
            await call(made(run, timeout=0.01), {}, INFO)
    finally:
        may_end.set()


async def test_a_timeout_inside_the_tool_is_the_tools_own() -> None:
    async def run(arguments: dict[str, Any], info: CallInfo) -> None:
        del arguments, info
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as caught:
        await call(made(run), {}, INFO)
    assert not isinstance(caught.value, ToolTimeoutError)


@pytest.mark.parametrize("error", [ValueError("x"), Fenced(), KeyboardInterrupt()])
async def test_what_a_thread_raises_is_raised_where_it_is_awaited(error: BaseException) -> None:
    def run(arguments: dict[str, Any], info: CallInfo) -> None:
        del arguments, info
        raise error

    with pytest.raises(type(error)) as caught:
        await call(made(run), {}, INFO)
    assert caught.value is error


async def test_stop_iteration_is_no_result() -> None:
    def work() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(work)


async def test_so_many_threads_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_slots, "MAX_THREADS", 6)  # a tenant gets half
    may_end = threading.Event()
    lock = threading.Lock()
    inside: list[int] = [0, 0]  # now, at most
    full = threading.Event()

    def work() -> None:
        with lock:
            inside[0] += 1
            inside[1] = max(inside)
            if inside[0] == 3:
                full.set()
        assert may_end.wait(10)
        with lock:
            inside[0] -= 1

    tasks = [asyncio.create_task(in_thread(work)) for _ in range(10)]
    assert await asyncio.to_thread(full.wait, 10)
    may_end.set()
    await asyncio.gather(*tasks)
    assert inside == [0, 3]


async def test_tools_of_one_tenant_that_hang_leave_threads_for_the_others() -> None:
    may_end = threading.Event()

    async def hang() -> None:
        current_tenant.set("noisy")
        await in_thread(lambda: may_end.wait(30))

    async def answer(tenant: str) -> str:
        current_tenant.set(tenant)
        return await in_thread(lambda: tenant)

    hanging = [asyncio.create_task(hang()) for _ in range(200)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(10):
            assert [await answer(f"quiet {n}") for n in range(3)] == [
                f"quiet {n}" for n in range(3)
            ]
        assert not any(task.done() for task in hanging)
    finally:
        may_end.set()
    await asyncio.gather(*hanging)


async def test_a_call_given_up_in_the_queue_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_slots, "MAX_THREADS", 1)
    may_end = threading.Event()
    ran: list[str] = []
    first = asyncio.create_task(in_thread(lambda: may_end.wait(10)))
    await asyncio.sleep(0)

    def run(arguments: dict[str, Any], info: CallInfo) -> None:
        del arguments, info
        ran.append("ran")

    waiting = made(run, timeout=0.01)
    with pytest.raises(ToolTimeoutError):
        await call(waiting, {}, INFO)
    may_end.set()
    await first
    await in_thread(lambda: None)
    assert ran == []


def test_a_tool_that_hangs_does_not_keep_the_process() -> None:
    code = """
import asyncio, threading
from lango.tools.calling import in_thread
async def main():
    try:
        async with asyncio.timeout(0.05):
            await in_thread(threading.Event().wait)
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "gave up\n"
