"""`lango workers`: who runs turns, of which versions, and since when they are silent."""

from __future__ import annotations

import asyncio

from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.workers import Worker, Workers
from tests.cli.running import run
from tests.store.rows import execute

PRINT = "0123456789abcdef"


def registered(url: str, *names: str) -> None:
    async def register() -> None:
        async with SqlSessionStore(url) as store:
            for number, name in enumerate(names):
                worker = Worker(name, {"shop": PRINT, "desk": "ff"}, "pod", number)
                await Workers(store.database).register(worker)

    asyncio.run(register())


def test_without_workers(sqlite_url: str) -> None:
    done = run("workers", "--url", sqlite_url)
    assert done.out.startswith("No worker is registered. ")
    assert run("workers", "--json", "--url", sqlite_url).out.split() == [
        "{",
        '"workers":',
        "[]",
        "}",
    ]


def test_workers_alive_and_silent(store_url: str) -> None:
    registered(store_url, "wrk_one", "wrk_two")
    old = "2020-01-01 00:00:00.000000"
    silence = f"update workers set beat = '{old}' where id = 'wrk_two'"  # noqa: S608
    asyncio.run(execute(store_url, silence))
    heading, *rows = run("workers", "--url", store_url).out.splitlines()
    assert heading.split() == ["worker", "state", "heartbeat", "running", "process", "up", "apps"]
    [one] = [row.split() for row in rows if row.startswith("wrk_one")]
    [two] = [row.split() for row in rows if row.startswith("wrk_two")]
    assert (one[1], two[1]) == ("alive", "silent")
    assert one[-2:] == ["desk@ff,", f"shop@{PRINT[:8]}"]
    assert "pod:1" in two
    assert rows[-1] == "Other workers resume the turns of a silent worker."
    asyncio.run(execute(store_url, "delete from workers"))
