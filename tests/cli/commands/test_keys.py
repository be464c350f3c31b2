"""`lango keys`: made, listed, rotated, revoked; and shown once."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lango.core.keys import KeyText
from lango.store.keys import ApiKey, KeyStore
from lango.store.sessions.store import SqlSessionStore
from tests.cli.running import CommandResult, run


def made_by(done: CommandResult) -> str:
    """The key that a command has shown."""
    assert done.code == 0, done.err
    assert "only time it is shown" in done.err
    return done.out.strip()


def found(url: str, text: str) -> ApiKey | None:
    """What a server would find for a key."""

    async def look() -> ApiKey | None:
        async with SqlSessionStore(url) as store:
            given = KeyText.read(text)
            return None if given is None else await KeyStore(store.database).find(given)

    return asyncio.run(look())


def listed(url: str, *more: str) -> list[dict[str, Any]]:
    return json.loads(run("keys", "list", "--url", url, "--json", *more).out)


def test_a_key_is_made_and_works(store_url: str, tenant: str) -> None:
    text = made_by(run("keys", "create", "--user", "ann", "--url", store_url, "--tenant", tenant))
    key = found(store_url, text)
    assert key is not None
    assert (key.tenant, key.user, key.scopes) == (tenant, "ann", {"chat"})
    (output,) = listed(store_url, "--tenant", tenant)
    assert (output["id"], output["state"], output["limits"]) == (key.id, "live", {})


def test_all_that_can_be_said_of_a_key(sqlite_url: str) -> None:
    options = "--scope act_as --scope admin --days 2 --requests 60 --turns 4 --cost 2.5 --json"
    done = run("keys", "create", "--url", sqlite_url, "--name", "shop", *options.split())
    body = json.loads(done.out)
    assert found(sqlite_url, body["key"]) is not None
    assert body["scopes"] == ["act_as", "admin", "chat"]
    assert body["limits"] == {"requests": 60, "turns": 4, "cost": 2.5}
    assert (body["user"], body["name"]) == (None, "shop")
    assert body["expires"] > body["created"]


def test_the_tenant_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lango.yaml").write_text("store: {url: 'sqlite:///new.db', tenant: acme}\n")
    made_by(run("keys", "create", "--user", "ann"))  # a first run has no file yet
    assert [key["tenant"] for key in json.loads(run("keys", "list", "--json").out)] == ["acme"]
    assert "There are no keys." in run("keys", "list", "--tenant", "other").out


def test_the_table_shows_no_secret(sqlite_url: str) -> None:
    hostile = "[red]x[/]\x1b[31m"
    text = made_by(run("keys", "create", "--url", sqlite_url, "--user", "ann", "--name", hostile))
    made_by(run("keys", "create", "--url", sqlite_url, "--scope", "act_as", "--days", "1"))
    found(sqlite_url, text)
    shown = run("keys", "list", "--url", sqlite_url)
    assert shown.code == 0
    key = KeyText.read(text)
    assert key is not None
    assert key.id in shown.out
    assert "[red]x[/]" in shown.out
    assert "\x1b" not in shown.out
    assert key.secret not in shown.out + json.dumps(listed(sqlite_url))
    assert key.hash not in shown.out + json.dumps(listed(sqlite_url))
    assert re.search(r"act_as chat +until 20\d\d-.* +never", shown.out)


def test_rotate_and_revoke(sqlite_url: str) -> None:
    url_option = ("--url", sqlite_url)
    old = made_by(run("keys", "create", "--user", "ann", *url_option))
    key = found(sqlite_url, old)
    assert key is not None
    new = made_by(run("keys", "rotate", key.id, *url_option))
    assert found(sqlite_url, old) is not None
    assert found(sqlite_url, new) is not None
    assert run("keys", "revoke", key.id, *url_option).out == f"The key {key.id} is revoked.\n"
    assert found(sqlite_url, old) is None
    assert found(sqlite_url, new) is not None
    assert sorted(output["state"] for output in listed(sqlite_url)) == ["live", "revoked"]


def test_rotate_at_once(sqlite_url: str) -> None:
    url_option = ("--url", sqlite_url)
    old = made_by(run("keys", "create", "--user", "ann", *url_option))
    key = found(sqlite_url, old)
    assert key is not None
    output = json.loads(run("keys", "rotate", key.id, "--grace", "0", "--json", *url_option).out)
    assert found(sqlite_url, old) is None
    assert found(sqlite_url, output["key"]) is not None
    assert sorted(one["state"] for one in listed(sqlite_url)) == ["expired", "live"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("create", "belongs to a user, or has the scope act_as"),
        ("create --user ann --scope chatt", "no scope chatt; there are chat, act_as, admin"),
        ("create --user ann --turns 0", "must be above 0"),
        ("create --user ann --days -1", "must be above 0"),
        ("revoke nix", "There is no API key nix here."),
        ("rotate nix", "There is no API key nix here."),
    ],
)
def test_what_cannot_be_done(sqlite_url: str, words: str, why: str) -> None:
    done = run("keys", *words.split(), "--url", sqlite_url)
    assert (done.code, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert line.startswith("lango: ")
    assert why in line


def test_a_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.store.db.retry.RETRIES", 1)
    url = "postgresql://ann:s3cret@127.0.0.1:1/none"
    done = run("keys", "list", "--url", url)
    assert done.code == 1
    assert "Nothing answers at 127.0.0.1:1/none" in done.err
    assert "s3cret" not in done.err + done.out
