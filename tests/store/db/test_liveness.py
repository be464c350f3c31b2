"""Connections that a network forgets without a word."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa

from faults.database.proxy import Proxy
from lango.errors import UnsupportedUrlError
from lango.store.db import leases, liveness
from lango.store.db.database import Database
from lango.store.db.engines import create_engine, store_url
from lango.store.db.liveness import Keepalive
from tests.support.databases import direct

SOON = 15.0
"""A limit against hanging: a statement over a dead connection would wait for 35 seconds."""
AT_ONCE = 3
SLOW = "select pg_sleep(0.1)"


async def _read(database: Database) -> None:
    async with database.snapshot() as connection:
        await connection.execute(sa.text(SLOW))


async def _change(database: Database) -> None:
    async with database.transaction():
        await asyncio.sleep(0.1)


async def _use(database: Database) -> None:
    """Of each way to a connection, more than one at once."""
    work = [*(database.fetch(SLOW) for _ in range(AT_ONCE)), _change(database)]
    await asyncio.gather(*work, *(_read(database) for _ in range(2)))


@pytest.fixture
def idle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "TRY_AFTER", 0.1)
    monkeypatch.setattr(liveness, "ANSWERS_WITHIN", 0.5)
    monkeypatch.setattr(liveness, "CLOSES_WITHIN", 2 * SOON)  # such a connection is not closed


@asynccontextmanager
async def _opened(proxy: Proxy) -> AsyncGenerator[Database]:
    database = Database(proxy.url)
    await _use(database)
    try:
        yield database
    finally:
        async with asyncio.timeout(SOON):
            await database.close()


@pytest.mark.usefixtures("idle_at_once")
async def test_connections_lost_while_idle_are_replaced(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy, _opened(proxy) as database:
        lost = proxy.forget()
        assert lost > AT_ONCE
        await asyncio.sleep(0.2)
        async with asyncio.timeout(SOON):
            await _use(database)


@pytest.mark.usefixtures("idle_at_once")
async def test_sqlite_has_no_server_that_could_be_gone(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    for _ in range(2):
        async with database.snapshot() as connection, database.begin() as writing:
            await connection.execute(sa.text("select 1"))
            await writing.execute(sa.text("select 1"))
        await asyncio.sleep(0.2)
    await database.close()


@pytest.mark.usefixtures("idle_at_once")
async def test_connections_that_still_answer_are_kept(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (liveness, leases):
        monkeypatch.setattr(module, "ANSWERS_WITHIN", SOON)
    async with Proxy(postgres_url) as proxy, _opened(proxy) as database:
        made = proxy.accepted
        await asyncio.sleep(0.2)
        await _use(database)
        assert proxy.accepted == made


@pytest.mark.usefixtures("idle_at_once")
async def test_lost_connections_are_closed_without_waiting(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy, _opened(proxy):
        proxy.forget()
        await asyncio.sleep(0.2)


async def test_connections_lost_in_use_are_closed_soon(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy:
        engine = create_engine(store_url(proxy.url))
        async with engine.connect() as connection:
            await connection.execute(sa.text("select 1"))
            await connection.rollback()
        proxy.forget()
        async with asyncio.timeout(SOON):
            await engine.dispose()


async def test_a_statement_without_an_answer_ends_all_pooled_connections(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "TRY_AFTER", 600.0)
    async with Proxy(postgres_url) as proxy:
        engine = create_engine(store_url(proxy.url), statement_timeout=3.0)

        async def answer() -> int | None:
            async with engine.connect() as connection:
                return await connection.scalar(sa.text("select 1"))

        try:
            async with engine.connect() as one, engine.connect() as other:
                await one.scalar(sa.text("select 1"))
                await other.scalar(sa.text("select 1"))
            assert proxy.forget() == 2
            with pytest.raises(TimeoutError):
                await answer()
            assert await answer() == 1
        finally:
            await engine.dispose()


async def test_sockets_and_the_server_ask_for_signs_of_life(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets: list[socket.socket] = []
    apply = Keepalive.apply

    def noted(self: Keepalive, transport: asyncio.BaseTransport) -> None:
        apply(self, transport)
        sockets.append(transport.get_extra_info("socket"))

    monkeypatch.setattr(Keepalive, "apply", noted)
    url = store_url(direct(postgres_url)).update_query_dict(
        {"keepalives_idle": "7", "tcp_user_timeout": "4000", "tcp_keepalives_idle": "33"}
    )
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            made = sockets[0]
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7
            usual = Keepalive()
            interval = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            count = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert (interval, count) == (usual.keepalives_interval, usual.keepalives_count)
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
            assert await connection.scalar(sa.text("show tcp_keepalives_idle")) == "33"
            assert await connection.scalar(sa.text("show tcp_keepalives_count")) == "3"
    finally:
        await engine.dispose()


async def test_keepalives_can_be_turned_off(postgres_url: str) -> None:
    keepalive = Keepalive.of({"keepalives": "0", "tcp_user_timeout": "0"})
    url = store_url(postgres_url)
    _, writer = await asyncio.open_connection(url.host or "127.0.0.1", url.port or 5432)
    keepalive.apply(writer.transport)
    made = writer.get_extra_info("socket")
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    writer.close()
    await writer.wait_closed()


def test_keepalives_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(UnsupportedUrlError, match="keepalives_idle"):
        create_engine(store_url("postgresql://u@h/d?keepalives_idle=soon"))
