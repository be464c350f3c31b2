"""PgBouncer in transaction mode: each transaction may get another connection of the server."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.errors import SchemaError, StoreError, UnsupportedUrlError
from lango.store.db import pooler
from lango.store.db.database import Database
from lango.store.db.engines import LOCK_TIMEOUT, session_url, store_url
from lango.store.db.listen import Notices
from lango.store.db.statement import Prepared, Transaction
from lango.store.schema import migrate
from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.database import LocalEngine
from lango.turns.engine.opened import POLL_POSTGRES, POLL_SQLITE
from tests.store.rows import created, execute, key, said, texts
from tests.support.databases import POOLED_VARIABLE, give_settings, temporary_postgres, through
from tests.support.pgbouncer import pgbouncer, program, require_pgbouncer, version

_SETTINGS = "select current_setting('lock_timeout') as waits, current_schema() as schema"
_IN_A_LEASE = Prepared(
    sa.select(
        sa.func.current_setting("lock_timeout").label("waits"),
        sa.func.current_schema().label("schema"),
    )
)
_TRACKS = program() is not None and version() >= (1, 21)
_OURS = f"{LOCK_TIMEOUT}s"
_LEFT = "select count(*) from pg_prepared_statements where name not like 'PGBOUNCER%'"
"""Statements on a server connection, but for those whose names are PgBouncer's own."""


@pytest.fixture
async def url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A database of the test's own, past any pooler."""
    monkeypatch.delenv(POOLED_VARIABLE, raising=False)
    async with temporary_postgres(postgres_url) as made:
        yield made


@pytest.fixture
def pooled(url: str) -> Iterator[str]:
    """The same through a pooler that has one connection to the server."""
    require_pgbouncer()
    with pgbouncer(url, pool_size=1) as port:
        yield through(url, port)


def without_direct(pooled: str) -> str:
    return str(make_url(pooled).difference_update_query(["direct_url"]))


async def seen(database: Database) -> list[tuple[str, str]]:
    """The settings in each kind of transaction: a single statement, a lease, SQLAlchemy's."""

    async def lease(transaction: Transaction) -> Any:
        return await transaction.one(_IN_A_LEASE)

    async def connection(connection: AsyncConnection) -> Any:
        return (await connection.execute(sa.text(_SETTINGS))).one()

    found: list[Any] = [
        (await database.fetch(_SETTINGS))[0],
        (await database.read(_IN_A_LEASE))[0],
        await database.transact(lease),
        await database.read(connection),
        await database.write(connection),
    ]
    return [(row[0], row[1]) for row in found]


async def test_transactions_have_their_settings_and_leave_none(pooled: str) -> None:
    store = SqlSessionStore(pooled)
    assert set(await seen(store.database)) == {(_OURS, "public")}
    bare: Any = import_module("asyncpg")  # it publishes no types
    another_client = await bare.connect(make_url(pooled).set(query={}).render_as_string())
    assert await another_client.fetchval("show lock_timeout") == "0"
    await another_client.close()
    await store.close()


async def test_settings_of_the_database_save_round_trips(
    pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    driver: Any = import_module("asyncpg").Connection
    usual = driver.execute

    async def execute(connection: Any, query: str, *arguments: Any, **options: Any) -> Any:
        sent.append(query)
        return await usual(connection, query, *arguments, **options)

    monkeypatch.setattr(driver, "execute", execute)
    async with SqlSessionStore(pooled) as store:
        await store.database.fetch("select 1")
        assert [text.partition(";")[0] for text in sent[-2:]] == ["begin", "commit"]
        assert len(await store.database.missing_settings()) == 3
    await give_settings(pooled)
    async with SqlSessionStore(pooled) as store:
        sent.clear()
        await store.database.fetch("select 1")
        assert sent == []
        assert await store.database.missing_settings() == []
        assert set(await seen(store.database)) == {(_OURS, "public")}


async def test_the_page_has_the_settings_of_the_database(pooled: str) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/postgresql.md").read_text()
    async with SqlSessionStore(pooled) as store:
        name = f'"{make_url(pooled).database}"'
        for statement in await store.database.missing_settings():
            assert f"\n{statement.replace(name, 'lango')};\n" in page


async def test_a_shorter_timeout_of_the_database_is_kept(url: str, pooled: str) -> None:
    name = make_url(url).database
    await execute(url, f'alter database "{name}" set lock_timeout = 300')
    async with SqlSessionStore(pooled) as store:
        assert set(await seen(store.database)) == {("300ms", "public")}
        assert not any("lock_timeout" in each for each in await store.database.missing_settings())


async def test_a_schema_is_found_in_every_transaction(pooled: str) -> None:
    schema = f'odd "{uuid4().hex}"'
    await migrate.upgrade(pooled, schema)
    async with (
        SqlSessionStore(pooled, schema=schema) as schema_store,
        SqlSessionStore(pooled) as default_store,
    ):
        assert {name for _, name in await seen(schema_store.database)} == {schema}
        assert {name for _, name in await seen(default_store.database)} == {"public"}
        assert len(await schema_store.database.missing_settings()) == 4
        ref = await created(schema_store, key("t"))
        await schema_store.append(ref, said("1"))
        assert await texts(schema_store, key("t")) == ["hi"]
        assert await default_store.load(key("t"), None) is None
        for statement in await schema_store.database.missing_settings():
            await execute(pooled, statement)
    await give_settings(pooled)  # and with it new server connections
    async with SqlSessionStore(pooled, schema=schema) as schema_store:
        assert await schema_store.database.missing_settings() == []
        assert await texts(schema_store, key("t")) == ["hi"]


async def test_clients_share_a_server_connection(pooled: str) -> None:
    """Their statements do not meet, and none stays."""
    async with SqlSessionStore(pooled) as one, SqlSessionStore(pooled) as other:
        for store, session in ((one, "a"), (other, "b")):
            ref = await created(store, key("t", session))
            await asyncio.gather(*(store.append(ref, said(f"{session}{n}")) for n in range(4)))
        for store, session in ((other, "a"), (one, "b")):
            assert await texts(store, key("t", session)) == ["hi"] * 4
        assert [list(row) for row in await one.database.fetch(_LEFT)] == [[0]]


async def test_a_pooler_that_keeps_track_of_statements_is_known(pooled: str) -> None:
    database = Database(pooled)
    engine = await database.open()
    async with engine.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        assert raw.is_tracked == _TRACKS
    await database.close()


async def test_a_statement_that_the_pooler_lost_is_prepared_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an operator sets `max_prepared_statements` to 0."""
    inspect = pooler._inspect  # pyright: ignore[reportPrivateUsage]
    found_out: list[bool] = []

    async def be_wrong_once(raw: Any, settings: Sequence[str]) -> dict[str, str]:
        found = await inspect(raw, settings)
        found_out.append("statement" in found)
        return {
            name: value for name, value in found.items() if found_out[1:] or name != "statement"
        }

    require_pgbouncer()
    monkeypatch.setattr(pooler, "_inspect", be_wrong_once)
    with pgbouncer(url, pool_size=2, more="max_prepared_statements = 0" if _TRACKS else "") as port:
        await give_settings(through(url, port))
        found_out.clear()
        one, other = Database(through(url, port)), Database(through(url, port))
        assert await one.read(_IN_A_LEASE)
        async with other.transaction() as transaction:  # has the server connection
            await transaction.one(_IN_A_LEASE)
            assert await one.read(_IN_A_LEASE)
        assert len(found_out) == 3
        await one.close()
        await other.close()


async def test_notices_arrive_past_the_pooler(pooled: str) -> None:
    database = Database(pooled)
    assert database.can_listen
    assert await Notices(database).arrive()
    assert LocalEngine(database).poll == POLL_POSTGRES
    await database.close()


async def test_without_a_direct_url_processes_poll(pooled: str) -> None:
    database = Database(without_direct(pooled))
    engine = LocalEngine(database)
    assert (engine.wakes.reaches_others, engine.poll) == (False, POLL_SQLITE)
    assert not await Notices(database).arrive()
    await database.close()


async def test_an_upgrade_goes_past_the_pooler(pooled: str) -> None:
    assert await migrate.upgrade(pooled) == migrate.head()
    alone = without_direct(pooled)
    assert await migrate.check(alone) == migrate.head()
    with pytest.raises(SchemaError, match=r"store\.direct_url"):
        await migrate.upgrade(alone)


async def test_a_pooler_that_is_taken_for_the_database(pooled: str) -> None:
    bare = make_url(pooled).set(query={}).render_as_string()
    with pytest.raises(UnsupportedUrlError, match=r"is PgBouncer\. .*store\.pooled: true"):
        await SqlSessionStore(bare).open()


async def test_a_restart_of_the_pooler_is_outlasted(url: str) -> None:
    require_pgbouncer()
    with pgbouncer(url) as port:
        store = SqlSessionStore(through(url, port))
        ref = await created(store, key("t"))
    appending = asyncio.create_task(store.append(ref, said("1")))
    await asyncio.sleep(0.1)
    with pgbouncer(url, port=port):
        await appending
        assert await texts(store, key("t")) == ["hi"]
        await store.close()


async def test_more_clients_than_server_connections_wait(pooled: str) -> None:
    async with SqlSessionStore(pooled, pool_size=5) as store:
        ref = await created(store, key("t"))
        await asyncio.gather(*(store.append(ref, said(str(n))) for n in range(40)))
        assert len(await texts(store, key("t"))) == 40


def test_arguments_and_parameters_say_the_same() -> None:
    past = "postgresql://u:s3cret@db/lango"
    by_arguments = Database("postgresql://u@pool/lango", pooled=True, direct_url=past)
    url = by_arguments.url.render_as_string(hide_password=False)
    assert by_arguments.is_same(Database(url))
    assert by_arguments.session_url == store_url(past)
    assert by_arguments.twin().session_url == store_url(past)
    assert session_url(store_url("postgresql://u@pool/lango?pooled=true")) is None
    assert session_url(store_url("postgresql://u@db/lango")) == store_url("postgresql://u@db/lango")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("sqlite:///lango.db", {"pooled": True}, "SQLite has no pooler"),
        ("postgresql://db/lango", {"direct_url": "postgresql://db/lango"}, "`pooled: true`"),
        ("postgresql://db/lango?direct_url=postgresql://db", {}, "`pooled: true`"),
        ("postgresql://db/lango?pooled=perhaps", {}, "true or false"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedUrlError, match=words):
        Database(url, **options)


async def test_listening_through_a_pooler_is_refused(pooled: str) -> None:
    database = Database(without_direct(pooled))
    with pytest.raises(StoreError, match=r"store\.direct_url"):
        await Notices(database).listen(lambda _: None, lambda: None)
