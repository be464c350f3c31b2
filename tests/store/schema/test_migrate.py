"""Schema upgrades, and refusing a database that is not ours."""

import asyncio
import re
import sqlite3
import sys
import warnings
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from faults.database.newer_schema import newer
from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.errors import SchemaError
from lango.store.model_calls import ModelCallStore
from lango.store.schema import migrate
from lango.store.schema.revisions import OURS
from lango.store.schema.tables import metadata
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, execute, key, said, texts

TOO_NEW = sa.text(
    f"update {migrate.VERSION_TABLE} set version_num = '9999', oldest_code = '9998'"  # noqa: S608
)


@pytest.fixture
def schema() -> str:
    """A new PostgreSQL schema name, unique to the test."""
    return f"lango_{uuid4().hex}"


def _new_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'new.db'}"


def _own_schema(store_url: str, folder: Path, schema: str) -> tuple[str, str | None]:
    """A new file on SQLite, a schema of the test's own on PostgreSQL, where there are no tables."""
    return (_new_file(folder), None) if store_url.startswith("sqlite") else (store_url, schema)


def _compare(connection: sa.Connection) -> list[Any]:
    def is_made_here(item: Any, *_: Any) -> bool:
        """Leave out on SQLite an index of PostgreSQL alone."""
        return connection.dialect.name == "postgresql" or item.name != "memories_embedding_ix"

    options: dict[str, Any] = {
        "version_table": migrate.VERSION_TABLE,
        "compare_type": True,
        # On SQLite Alembic takes '' and '' for different; the test below compares its defaults.
        "compare_server_default": connection.dialect.name == "postgresql",
        "include_name": _is_compared,
        "include_object": is_made_here,
    }
    context = MigrationContext.configure(connection, opts=options)
    with warnings.catch_warnings():  # on SQLite Alembic cannot read an index of PostgreSQL alone
        warnings.filterwarnings("ignore", "autogenerate skipping .* 'memories_words_ix'")
        return compare_metadata(context, metadata)


def _is_compared(name: str | None, kind: str, _: Any) -> bool:
    """Leave out SQLite's word index and the tables it is made of: the test below compares it."""
    return kind != "table" or not str(name).startswith("memory_words")


async def test_migrations_make_the_tables_we_use(store_url: str) -> None:
    async with beside(store_url) as connection:
        assert await connection.run_sync(_compare) == []


def test_migrations_are_called_what_their_files_are() -> None:
    scripts = ScriptDirectory.from_config(OURS.config())
    for script in scripts.walk_revisions():
        assert Path(script.path).name.startswith(f"{script.revision}_")
        assert OURS.knows(script.revision)
    assert scripts.get_current_head() == OURS.head


async def test_who_finds_the_tables_right_does_without_alembic(store_url: str) -> None:
    code = (
        "import asyncio, sys; from lango.store.db.database import Database\n"
        f"database = Database({store_url!r})\n"
        "async def look():\n"
        "    await database.open()\n"
        "    await database.check()\n"
        "    await database.close()\n"
        "asyncio.run(look()); print('alembic' in sys.modules)"
    )
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await done.communicate()
    assert output == b"False\n"


SQLITE_CATALOGUE = "select sql from sqlite_master where sql is not null"
# The conditions of indexes and storage options: what Alembic does not compare.
POSTGRESQL_CATALOGUE = """
select replace(indexdef, schemaname || '.', '') from pg_indexes
where schemaname = current_schema()
union all
select relname || coalesce(reloptions::text, '') from pg_class
where relkind = 'r' and relnamespace = quote_ident(current_schema())::regnamespace"""


def _catalogue(connection: sa.Connection) -> set[tuple[str, ...]]:
    """What the database itself says of its tables and indexes, apart from Alembic's own.

    The clauses of a statement are sorted, because the order of constraints means nothing; the
    order of columns is compared by itself.
    """
    sql = SQLITE_CATALOGUE if connection.dialect.name == "sqlite" else POSTGRESQL_CATALOGUE
    found = [line for line in connection.scalars(sa.text(sql)) if migrate.VERSION_TABLE not in line]
    words = {tuple(sorted(re.split(r"[\s,()]+", line.lower()))) for line in found}
    return words | _ordered_columns(connection)


def _ordered_columns(connection: sa.Connection) -> set[tuple[str, ...]]:
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names()) - {migrate.VERSION_TABLE}
    return {(name, *(column["name"] for column in inspector.get_columns(name))) for name in names}


async def test_the_databases_own_words_for_them_are_the_same(
    store_url: str, tmp_path: Path, schema: str
) -> None:
    async with beside(store_url) as connection:
        migrated = await connection.run_sync(_catalogue)
    url, where = _own_schema(store_url, tmp_path, schema)
    if where:
        await execute(url, f"create schema {where}")
    async with beside(url, where) as connection:
        await connection.run_sync(metadata.create_all)
        made = await connection.run_sync(_catalogue)
    assert len(made) > 10
    assert migrated == made


async def test_upgrading_again_does_nothing(store_url: str) -> None:
    assert await migrate.upgrade(store_url) == migrate.head()
    assert await migrate.current(store_url) == await migrate.check(store_url) == migrate.head()


async def test_an_older_database_keeps_its_data(
    store_url: str, tmp_path: Path, schema: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer lango refuses it until it is upgraded, and then reads and writes it."""
    url, where = _own_schema(store_url, tmp_path, schema)
    await migrate.upgrade(url, where)
    store = SqlSessionStore(url, schema=where)
    await store.append(await created(store, key(tenant)), said("e1", "kept"))
    await store.close()
    monkeypatch.setattr(migrate, "carried", newer(tmp_path / "newer"))
    store = SqlSessionStore(url, schema=where)
    expected = rf"at schema {OURS.head}, this lango needs 9001\. .*lango db upgrade"
    with pytest.raises(SchemaError, match=expected):
        await store.open()
    assert await migrate.upgrade(url, where) == await migrate.check(url, where) == "9001"
    try:
        assert await texts(store, key(tenant)) == ["kept"]
        await store.append((await store.locate(key(tenant))), said("e2", "and more"))
        assert await texts(store, key(tenant)) == ["kept", "and more"]
        calls = ModelCallStore(store.database)
        await calls.add(
            tenant, [ModelCall(ModelAttempt("p", "m", 1.0, 2.0), 1, "c", ("a", "u", "s"))]
        )
        assert len(await calls.of_session(key(tenant))) == 1
    finally:
        await store.close()


@pytest.mark.parametrize("revision", ["0001", "0015"])
async def test_a_database_from_before_the_first_release_is_refused_and_left_alone(
    store_url: str, tmp_path: Path, schema: str, revision: str
) -> None:
    """Its first schemas did not record the oldest code."""
    url, where = _own_schema(store_url, tmp_path, schema)
    if where:
        await execute(url, f"create schema {where}")
    table = f"create table {migrate.VERSION_TABLE} (version_num varchar(32) not null)"
    row = f"insert into {migrate.VERSION_TABLE} values ('{revision}')"  # noqa: S608
    await execute(url, table, row, schema=where)
    expected = rf"at schema {revision}, from before .* a new database; .*`lango sessions export`"
    await _refuses(url, where, revision, expected)
    async with beside(url, where) as connection:
        names = await connection.run_sync(lambda sync: sa.inspect(sync).get_table_names())
    assert names == [migrate.VERSION_TABLE]


async def test_a_database_that_lacks_a_table_is_refused(tmp_path: Path) -> None:
    """A version from before the first release has made it, under the same number."""
    url = f"sqlite:///{tmp_path / 'old.db'}"
    await migrate.upgrade(url)
    async with beside(url) as connection:
        await connection.execute(sa.text("drop table memories"))
    await _refuses(
        url, None, migrate.head(), r"lacks the tables memories: it is from before .*first"
    )


async def test_two_upgrades_at_once(postgres_url: str, schema: str) -> None:
    done = await asyncio.gather(*(migrate.upgrade(postgres_url, schema) for _ in range(4)))
    assert done == [migrate.head()] * 4


async def test_a_new_sqlite_file_gets_its_tables_when_opened(tmp_path: Path) -> None:
    url = _new_file(tmp_path)
    stores = [SqlSessionStore(url) for _ in range(4)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        ref = await created(stores[0], key("t"))
        await stores[1].append(ref, said("1"))
        assert await texts(stores[2], key("t")) == ["hi"]
    finally:
        await asyncio.gather(*(store.close() for store in stores))
    assert await migrate.check(url) == migrate.head()


async def test_postgresql_without_tables_is_refused_and_left_alone(
    postgres_url: str, schema: str
) -> None:
    store = SqlSessionStore(postgres_url, schema=schema)
    for doing in (store.open, lambda: created(store, key("t"))):
        with pytest.raises(SchemaError, match=r"has no lango tables yet.*lango db upgrade"):
            await doing()
    with pytest.raises(SchemaError, match="has no lango tables yet"):
        await migrate.check(postgres_url, schema)
    assert await migrate.current(postgres_url, schema) is None
    async with beside(postgres_url) as connection:
        names = await connection.run_sync(lambda sync: sa.inspect(sync).get_schema_names())
    assert schema not in names


async def test_a_sqlite_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    with sqlite3.connect(file) as connection:
        connection.execute("create table sessions (id text)")
    connection.close()
    with pytest.raises(SchemaError, match="has no lango tables yet"):
        await SqlSessionStore(_new_file(tmp_path)).open()
    with sqlite3.connect(file) as connection:
        tables = connection.execute("select name from sqlite_master").fetchall()
    connection.close()
    assert tables == [("sessions",)]


async def test_a_schema_that_is_too_new_is_refused_on_postgresql(
    postgres_url: str, schema: str
) -> None:
    await migrate.upgrade(postgres_url, schema)
    await execute(postgres_url, TOO_NEW, schema=schema)
    await _refuses_too_new(postgres_url, schema)


async def test_a_schema_that_is_too_new_is_refused_on_sqlite(sqlite_url: str) -> None:
    await execute(sqlite_url, TOO_NEW)
    await _refuses_too_new(sqlite_url, None)


async def _refuses_too_new(url: str, schema: str | None) -> None:
    await _refuses(url, schema, "9999", "at schema 9999, which this version of lango does not know")


async def _refuses(url: str, schema: str | None, revision: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        await SqlSessionStore(url, schema=schema).open()
    for doing in (migrate.check, migrate.upgrade):
        with pytest.raises(SchemaError, match=expected):
            await doing(url, schema)
    assert await migrate.current(url, schema) == revision


async def test_two_schemas_of_one_database_do_not_see_each_other(
    postgres_url: str, schema: str, tenant: str
) -> None:
    names = (schema, f"{schema} Odd Name")
    for name in names:
        await migrate.upgrade(postgres_url, name)
    stores = [SqlSessionStore(postgres_url, schema=name) for name in (*names, None)]
    try:
        for number, store in enumerate(stores):
            ref = await created(store, key(tenant))
            await store.append(ref, said("1", f"in {number}"))
        for number, store in enumerate(stores):
            assert await texts(store, key(tenant)) == [f"in {number}"]
        await stores[0].delete(key(tenant))
        assert await stores[0].load(key(tenant), None) is None
        assert await texts(stores[1], key(tenant)) == ["in 1"]
        assert await texts(stores[2], key(tenant)) == ["in 2"]
    finally:
        for store in stores:
            await store.close()


async def test_a_search_path_set_on_the_server_is_obeyed(postgres_url: str, schema: str) -> None:
    """Without the option, tables go where the server's own search path says first."""
    database = sa.make_url(postgres_url).database
    setting = f'alter database "{database}" set search_path'
    await execute(postgres_url, f"create schema {schema}", f"{setting} = {schema}, pg_catalog")
    try:
        assert await migrate.upgrade(postgres_url) == migrate.head()
        async with beside(postgres_url) as connection:
            where = await connection.scalar(sa.text("select 'sessions'::regclass::oid"))
            subquery = f"select '{schema}.sessions'::regclass::oid"
            assert where == await connection.scalar(sa.text(subquery))
    finally:
        reset = setting.replace(" set ", " reset ")
        await execute(postgres_url, reset)


async def test_tables_anywhere_on_the_search_path_are_found(postgres_url: str, schema: str) -> None:
    """Those of an empty schema that comes first do not count as missing."""
    setting = f'alter database "{sa.make_url(postgres_url).database}" set search_path'
    schemas = (schema, f"{schema}_first")
    await execute(postgres_url, *(f"create schema {name}" for name in schemas))
    try:
        await execute(postgres_url, f"{setting} = {schema}, pg_catalog")
        await migrate.upgrade(postgres_url)
        await execute(postgres_url, f"{setting} = {schema}_first, {schema}, pg_catalog")
        assert await migrate.check(postgres_url) == migrate.head()
    finally:
        await execute(postgres_url, setting.replace(" set ", " reset "))
