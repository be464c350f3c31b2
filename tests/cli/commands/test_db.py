"""`lango db`: what it does, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from google.adk.sessions.database_session_service import DatabaseSessionService

from lango.store.schema import migrate
from tests.cli.running import CommandResult, run

PASSWORD = "s3cret"


@pytest.fixture
def schema() -> str:
    """A new PostgreSQL schema name, unique to the test."""
    return f"lango_{uuid4().hex}"


def refusal(done: CommandResult) -> str:
    """The one line that a command says when it cannot do what it should."""
    assert done.code == 1
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("lango: ")
    assert PASSWORD not in line
    assert "sqlalche.me" not in line
    return line


def test_upgrade_check_current_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert (
        run("db", "upgrade", "--url", url).out == f"The database is at schema {migrate.head()}.\n"
    )
    assert run("db", "upgrade", "--url", url).code == 0
    assert "which this version of lango works with" in run("db", "check", "--url", url).out
    assert run("db", "current", "--url", url).out == f"{migrate.head()}\n"


def test_upgrade_check_current_in_a_postgresql_schema(postgres_url: str, schema: str) -> None:
    store_options = ("--url", postgres_url, "--schema", schema)
    assert (
        run("db", "current", *store_options).out == "none: the database has no lango tables yet\n"
    )
    message = refusal(run("db", "check", *store_options))
    assert "has no lango tables yet. Run `lango db upgrade" in message
    assert run("db", "upgrade", *store_options).code == 0
    assert run("db", "check", *store_options).code == 0


def test_the_url_may_come_from_the_environment(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGO_STORE__URL", sqlite_url)
    assert run("db", "check").code == 0


def set_schema(url: str, revision: str, oldest_code: str) -> None:
    """Let the database say that a newer lango upgraded it."""
    statement = f"update {migrate.VERSION_TABLE} set version_num = ?, oldest_code = ?"  # noqa: S608
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute(statement, (revision, oldest_code))
    connection.close()


def test_a_newer_schema_that_serves_is_left_as_it_is(sqlite_url: str) -> None:
    set_schema(sqlite_url, "9999", migrate.head())
    assert run("db", "upgrade", "--url", sqlite_url).out == "The database is at schema 9999.\n"
    assert "which this version of lango works with" in run("db", "check", "--url", sqlite_url).out


def test_a_schema_that_is_too_new_is_refused(sqlite_url: str) -> None:
    set_schema(sqlite_url, "9999", "9998")
    for command in ("check", "upgrade"):
        message = refusal(run("db", command, "--url", sqlite_url))
        assert "at schema 9999, which this version of lango does not know" in message


@pytest.mark.parametrize("command", ["check", "current"])
def test_looking_creates_no_file(command: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'typo.db'}"
    assert f"There is no file {tmp_path / 'typo.db'}." in refusal(run("db", command, "--url", url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"postgresql://ann:{PASSWORD}@127.0.0.1:1/shop", "Nothing answers at 127.0.0.1:1/shop: "),
        (f"postgresql://ann:{PASSWORD}@127.0.0.1:no/shop", "Not a database URL"),
        (f"mysql://ann:{PASSWORD}@127.0.0.1/shop", "mysql:// is not supported"),
        (f"ann:{PASSWORD}@shop", "Not a database URL"),
        ("sqlite://lango.db", "begins with postgresql:// or sqlite:///"),
        ("sqlite:////nowhere/at/all/lango.db", "no folder /nowhere/at/all for lango.db"),
    ],
)
def test_a_database_that_cannot_be_reached(url: str, message: str) -> None:
    assert message in refusal(run("db", "upgrade", "--url", url))


def test_a_server_that_says_no(postgres_url: str) -> None:
    server = postgres_url.rpartition("/")[0]
    message = refusal(run("db", "check", "--url", f"{server}/no_such_database"))
    assert message.endswith('/no_such_database: database "no_such_database" does not exist.')
    message = refusal(run("db", "check", "--url", f"{postgres_url}?colour=red"))
    assert message.endswith('unrecognized configuration parameter "colour".')


def test_postgresql_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    message = refusal(run("db", "check", "--url", "postgresql://127.0.0.1/shop"))
    assert message.endswith('pip install "lango-adk[postgres]"')


def test_tables_of_adk_are_not_mistaken_for_ours(tmp_path: Path) -> None:
    async def made_by_adk() -> None:
        async with DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path / 'adk.db'}") as service:
            await service.create_session(app_name="shop", user_id="ann")

    asyncio.run(made_by_adk())
    message = refusal(run("db", "upgrade", "--url", f"sqlite:///{tmp_path / 'adk.db'}"))
    assert "sessions" in message
    assert "another system" in message


def test_the_store_is_the_one_the_settings_name(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    advice = "Run the command in the folder of your lango.yaml, or correct the URL."
    assert run("db", "current").err == f"lango: There is no file lango.db. {advice}\n"
    settings = tmp_path / "other.yaml"
    settings.write_text(f"store: {{url: '{sqlite_url}'}}\n")
    assert run("db", "upgrade", "--config", str(settings)).code == 0
    assert run("db", "check", "--config", str(settings)).code == 0
