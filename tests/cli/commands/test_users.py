"""`lango users`: what is stored of a user is shown and deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer

from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.sessions.entries import SessionRef
from lango.store.sessions.store import SqlSessionStore
from tests.cli.eventful_store import Shell, filled, key
from tests.cli.running import run
from tests.store.rows import key as named

FACTS = ("Ann likes \x1b[31mtea.", "Ann has a cat.", "Ann lives in Rome.")
OF_SHOP = ("--app", "shop")


def remembering(url: str, tenant: str) -> Shell:
    """A session of ann's, whose messages are in her memory, beside some facts."""

    async def fill() -> None:
        async with SqlSessionStore(url) as store:
            memory = SqlMemoryStore(store.database)
            await memory.add_session(await store.locate(key(tenant)))
            facts = [NewMemory(text, "", "user", 1_760_000_000.0, text) for text in FACTS]
            for user in ("ann", "bob"):
                where = named(tenant, "", user=user, app="shop")
                await memory.add(SessionRef(where), facts)

    filled(url, tenant)
    asyncio.run(fill())
    return Shell(url, tenant)


def texts(shell: Shell, *words: str, user: str = "ann") -> list[str]:
    found = shell.json("users", "memory", user, *OF_SHOP, *words)["entries"]
    return [entry["text"] for entry in found]


def test_memory_is_listed_and_searched(store_url: str, tenant: str) -> None:
    shell = remembering(store_url, tenant)
    assert texts(shell, "--limit", "2") == [FACTS[2], FACTS[1]]
    assert texts(shell, "-q", "a cat")[0] == FACTS[1]
    assert texts(shell, user="stranger") == []
    heading, *rows = shell.out("users", "memory", "ann", *OF_SHOP).splitlines()
    assert heading.split() == ["entry", "time", "author", "session", "text"]
    assert "Ann lives in Rome." in rows[0]
    assert not any("\x1b" in row for row in rows)
    assert {row.split()[-1] for row in rows if " s1 " in row}
    nothing = shell.out("users", "memory", "stranger", *OF_SHOP)
    assert nothing == "There are no such entries.\n"


def test_memory_is_deleted(store_url: str, tenant: str) -> None:
    shell = remembering(store_url, tenant)
    newest = shell.json("users", "memory", "ann", *OF_SHOP)["entries"][0]["id"]
    forget = ("users", "forget", "ann", *OF_SHOP, "--yes")
    assert shell.out(*forget, newest, newest) == "Deleted entries: 1.\n"
    other = shell.json("users", "memory", "bob", *OF_SHOP)["entries"][0]["id"]
    assert shell.out(*forget, other) == "Deleted entries: 0.\n"
    left = len(texts(shell))
    assert left > 2
    assert shell.out(*forget) == f"Deleted entries: {left}.\n"
    assert texts(shell) == []
    assert len(texts(shell, user="bob")) == 3
    assert shell.json("sessions", "show", "s1")["newest"]


@pytest.mark.parametrize("command", ["forget", "delete"])
def test_a_question_comes_first(
    command: str, sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, request = remembering(sqlite_url, tenant), list[str]()

    def refuse(question: str, **_: object) -> None:
        request.append(question)
        raise typer.Abort

    monkeypatch.setattr("typer.confirm", refuse)
    before = texts(shell)
    assert shell.run("users", command, "ann", *OF_SHOP).code == 1
    assert texts(shell) == before
    assert ["ann" in question for question in request] == [True]


def test_a_user_is_deleted(store_url: str, tenant: str) -> None:
    shell = remembering(store_url, tenant)
    elsewhere = shell.out("users", "delete", "ann", "--app", "other", "--yes")
    assert elsewhere == "There is no data of this user.\n"
    deleted = shell.out("users", "delete", "ann", "--yes")
    assert deleted.startswith("Deleted sessions: 1, ")
    assert "entries of memory" in deleted
    assert "Session s1 not found." in shell.refused("sessions", "show", "s1")
    assert texts(shell) == []
    assert shell.json("users", "delete", "bob", "--yes")["memories"] == 3


def test_the_app_of_the_settings(sqlite_url: str, tenant: str, tmp_path: Path) -> None:
    shell = remembering(sqlite_url, tenant)
    assert "Pass --app" in shell.refused("users", "memory", "ann")
    settings = tmp_path / "lango.yaml"
    settings.write_text(f"apps:\n  shop: shop:agent\nstore:\n  url: '{sqlite_url}'\n")
    done = run("users", "memory", "ann", "-c", str(settings), "--tenant", tenant)
    assert (done.code, "Ann lives in Rome." in done.out) == (0, True)
