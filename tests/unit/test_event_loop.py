"""The event loop that a serving process gets."""

import asyncio
import sys

import pytest
import uvloop

from lango.turns import event_loop


async def the_loop() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_it_is_uvloop_s() -> None:
    assert event_loop.run(the_loop()) is uvloop.Loop


def test_it_is_asyncio_s_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(the_loop()).__module__.startswith("asyncio.")
