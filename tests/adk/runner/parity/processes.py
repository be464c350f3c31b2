"""Functions run by a process of their own, which shares nothing with this one.

The fork server has only imported what the runs need: a process forked from it is as new as
one that was started from nothing, and two seconds sooner.
"""

import asyncio
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 120

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.adk.runner.parity.warm"])


async def in_new_process(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `function` returns in a new process; its error, with its traceback, fails the test."""
    return await asyncio.to_thread(_run, function, args, kwargs)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    receiving, sending = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_call, args=(sending, function, args, kwargs))
    process.start()
    sending.close()
    with receiving:
        result, error = _answer(process, receiving)
    process.join()
    assert error is None, f"in the new process:\n{error}"
    return result


def _answer(process: BaseProcess, receiving: Connection) -> tuple[Any, str | None]:
    if not receiving.poll(PATIENCE):
        process.kill()
        return None, f"no answer within {PATIENCE} s"
    try:
        return receiving.recv()
    except EOFError:
        return None, "it ended without an answer"


def _call(
    sending: Connection, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    try:
        answer = function(*args, **kwargs), None
    except BaseException:  # noqa: BLE001 - whatever it was, the test must hear of it
        answer = None, traceback.format_exc()
    sending.send(answer)
