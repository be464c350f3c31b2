"""Every bus keeps the rules of buses."""

import asyncio

import pytest

from faults.carriers.bus_servers import BusServer
from lango.store.db.database import Database
from lango.testing.bus_suite import BusCheck, checks, on
from lango.turns.bus.choose import bus_of
from lango.turns.bus.database import DatabaseBus
from lango.turns.bus.nats import NatsBus
from lango.turns.bus.protocol import Bus, BusMessage
from lango.turns.bus.redis import RedisBus

KINDS = {"nats": NatsBus, "redis": RedisBus}


def _name(check: BusCheck) -> str:
    return getattr(check, "__name__", "")


def _made(server: BusServer, namespace: str) -> Bus:
    return KINDS[server.url.partition(":")[0]](server.url, namespace)


@pytest.mark.parametrize("check", checks(), ids=_name)
async def test_a_bus_with_a_server(check: BusCheck, server: BusServer) -> None:
    await check(lambda namespace: _made(server, namespace))


@pytest.mark.parametrize("check", checks(), ids=_name)
async def test_the_database_as_a_bus(check: BusCheck, postgres_url: str) -> None:
    opened: list[Database] = []

    def made(_: str) -> Bus:
        opened.append(Database(postgres_url))
        return DatabaseBus(opened[-1])

    try:
        await check(made)
    finally:
        for database in opened:
            await database.close()


async def test_a_bus_comes_back_with_its_subscriptions(server: BusServer) -> None:
    here, there = _made(server, "lango.x"), _made(server, "lango.x")
    async with on(here, "work") as one, on(there, "work") as other:
        server.kill()
        other.bus.subscribe("later")  # while there is no connection
        await server.start()
        for member in (one, other):
            await member.until(lambda member=member: member.joins > 1, "It does not come back")
        await here.publish([BusMessage("work"), BusMessage("later", b"data")])
        await other.until(lambda: len(other.received) > 1, "They do not arrive")
        assert other.received == [("work", b""), ("later", b"data")]


async def test_a_bus_waits_for_a_server_that_is_not_there_yet(server: BusServer) -> None:
    server.kill()
    bus = _made(server, "lango.x")
    opening = on(bus, "work")
    member = opening.__aenter__()
    await server.start()
    assert (await member).joins == 1
    await opening.__aexit__(None, None, None)


async def test_a_server_that_does_not_answer_is_left(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = server.url.partition(":")[0]
    monkeypatch.setattr(f"lango.turns.bus.{kind}.PING_EVERY", 1)
    bus = _made(server, "lango.x")
    async with on(bus, "work"):
        server.freeze()
        for _ in range(300):
            if not bus.is_connected:
                return
            await asyncio.sleep(0.1)
    pytest.fail("It counts as connected.")


def test_a_setting_chooses_the_bus(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    assert isinstance(bus_of("database", database), DatabaseBus)
    assert isinstance(bus_of("nats://127.0.0.1:4222", database), NatsBus)
    assert isinstance(bus_of("rediss://host/0", database), RedisBus)
