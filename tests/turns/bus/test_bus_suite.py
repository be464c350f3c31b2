"""Every bus keeps the rules of buses."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from faults.carriers.bus_servers import BusServer
from lango.errors import ConfigError
from lango.store.db.database import Database
from lango.testing.bus_suite import BusCheck, checks, on
from lango.turns.bus.choose import bus_of
from lango.turns.bus.connection import BusConnection, cancel_all
from lango.turns.bus.database import DatabaseBus
from lango.turns.bus.nats import NatsBus
from lango.turns.bus.protocol import Bus, BusMessage
from lango.turns.bus.redis import RedisBus

Change = Callable[[object, str], Awaitable[None]]
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
    publisher, other_bus = _made(server, "lango.x"), _made(server, "lango.x")
    async with on(publisher, "work") as one, on(other_bus, "work") as other:
        server.kill()
        other.bus.subscribe("later")  # while there is no connection
        await server.start()
        for member in (one, other):
            await member.until(lambda member=member: member.joins > 1, "It does not come back")
        await publisher.publish([BusMessage("work"), BusMessage("later", b"data")])
        await other.until(lambda: len(other.received) > 1, "They do not arrive")
        assert other.received == [("work", b""), ("later", b"data")]


async def _publish_for_a_second(bus: Bus) -> None:
    for _ in range(20):
        with suppress(Exception):
            await bus.publish([BusMessage("other", b"x" * 100_000)] * 10)
        await asyncio.sleep(0.05)


async def test_a_bus_comes_back_though_messages_were_unsent(server: BusServer) -> None:
    bus = _made(server, "lango.x")
    async with on(bus, "work") as member:
        server.freeze()
        publishing = asyncio.create_task(_publish_for_a_second(bus))
        await asyncio.sleep(0.5)  # the connection takes no more, and the client keeps the rest
        server.kill()
        await server.start()
        try:
            await member.until(lambda: member.joins > 1, "It does not come back")
        finally:
            await cancel_all(publishing)


async def test_topics_that_come_and_go_without_a_connection_are_not_kept(
    server: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.kill()
    bus, changes = _made(server, "lango.x"), list[str]()
    assert isinstance(bus, BusConnection)
    for name in ("receive", "ignore"):
        real = getattr(bus, name)

        async def counted(client: object, topic: str, *, real: Change = real) -> None:
            changes.append(topic)
            await real(client, topic)

        monkeypatch.setattr(bus, name, counted)
    for number in range(1_000):
        bus.subscribe(f"turn{number}")
        bus.unsubscribe(f"turn{number}")
    await server.start()
    async with on(bus, "work"):
        bus.subscribe("later")
        async with asyncio.timeout(10):
            while "later" not in changes:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
    assert changes == ["work", "later"]


async def test_a_bus_waits_for_a_server_that_is_not_there_yet(
    server: BusServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.kill()

    async def join() -> int:
        async with on(_made(server, "lango.x"), "work") as member:
            return member.joins

    joining = asyncio.create_task(join())
    async with asyncio.timeout(10):
        while "cannot be reached" not in caplog.text:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
    await server.start()
    assert await joining == 1


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


@pytest.mark.parametrize("extra", ["nats", "redis"])
def test_a_bus_without_its_package_is_refused(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    def is_installed(name: str) -> bool:
        return name != extra

    monkeypatch.setattr("lango.turns.bus.choose.is_installed", is_installed)
    with pytest.raises(ConfigError, match=rf"not installed: .*\[{extra}\]"):
        bus_of(f"{extra}://127.0.0.1", Database(sqlite_url))
