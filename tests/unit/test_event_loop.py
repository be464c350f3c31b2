"""The event loop that a serving process gets."""

import asyncio
import subprocess
import sys

import pytest
import uvloop

from lango.turns import event_loop
from tests.cli.processes import PATIENCE


async def the_loop() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_it_is_uvloop_s() -> None:
    assert event_loop.run(the_loop()) is uvloop.Loop


def test_it_is_asyncio_s_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(the_loop()).__module__.startswith("asyncio.")


_STUCK = """
import asyncio
from lango.turns import event_loop

async def cling():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            print("swallowed")

async def main():
    global task
    task = asyncio.create_task(cling())
    await asyncio.sleep(0)
    print("done")

event_loop._GRACE = 0.1
event_loop.run(main())
"""


def test_a_task_that_ignores_its_cancellation_does_not_keep_the_process() -> None:
    command = [sys.executable, "-c", _STUCK]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["done", "swallowed"]
    assert "ignore their cancellation: 1" in ended.stderr
