"""From one URL to an engine."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from lango.errors import UnsupportedUrlError
from lango.store.db.engines import close_engine, create_engine, is_sqlite, store_url
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://user@host:5433/db", "postgresql+asyncpg"),
        ("postgres://user@host/db", "postgresql+asyncpg"),
        ("postgresql+asyncpg://user@host/db", "postgresql+asyncpg"),
        ("sqlite:///lango.db", "sqlite+aiosqlite"),
        ("sqlite:////var/lib/lango.db", "sqlite+aiosqlite"),
        ("sqlite://", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///lango.db", "sqlite+aiosqlite"),
    ],
)
def test_our_urls_name_no_driver(url: str, driver: str) -> None:
    parsed = store_url(url)
    assert parsed.drivername == driver
    assert is_sqlite(parsed) == driver.startswith("sqlite")


def test_all_else_in_the_url_is_kept() -> None:
    parsed = store_url("postgresql://me:pass%20word@host:5433/db?sslmode=require")
    assert (parsed.username, parsed.password, parsed.host, parsed.port, parsed.database) == (
        "me",
        "pass word",
        "host",
        5433,
        "db",
    )
    assert parsed.query == {"sslmode": "require"}
    assert store_url("sqlite:////var/lib/lango.db").database == "/var/lib/lango.db"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:s3cret@host/db",
        "postgresql+psycopg2://me:s3cret@host/db",
        "sqlite+pysqlite:///lango.db",
        "https://me:s3cret@host/db",
        "lango.db",
        "me:s3cret@host",
        "",
        "postgresql//me:s3cret@host/db",
        "postgresql://me:s3cret@host:port/db",
    ],
)
def test_other_urls_are_refused_without_showing_secrets(url: str) -> None:
    with pytest.raises(UnsupportedUrlError) as refusal:
        store_url(url)
    assert "s3cret" not in str(refusal.value)
    assert len(str(refusal.value)) > 30
    with pytest.raises(UnsupportedUrlError):
        SqlSessionStore(url)


def test_sqlite_has_no_schemas(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedUrlError, match="SQLite has no schemas"):
        create_engine(store_url(f"sqlite:///{tmp_path / 'lango.db'}"), schema="mine")


async def test_postgresql_settings(postgres_url: str) -> None:
    engine = create_engine(store_url(postgres_url), schema='odd "name"', statement_timeout=1.5)
    try:
        async with engine.connect() as connection:
            timeout = await connection.scalar(sa.text("show statement_timeout"))
            path = await connection.scalar(sa.text("show search_path"))
    finally:
        await engine.dispose()
    assert timeout == "1500ms"
    assert path == '"odd ""name"""'


async def test_errors_hide_the_parameters(store_url: str) -> None:
    """They are people's words, and an error may reach a log."""
    statement = sa.text("insert into app_states (tenant, app_name, key) values (:t, null, null)")
    with pytest.raises(IntegrityError) as error:
        async with beside(store_url) as connection:
            await connection.execute(statement, {"t": "my secret words"})
    assert "parameters hidden" in str(error.value)


async def test_a_closed_engine_keeps_its_pool(postgres_url: str) -> None:
    """SQLAlchemy would keep the listeners of a second pool under the address of the first."""
    engine = create_engine(store_url(postgres_url))
    async with engine.connect() as connection:
        await connection.execute(sa.text("select 1"))
    pool = engine.pool
    await close_engine(engine)
    assert engine.pool is pool
