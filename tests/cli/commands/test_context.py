"""`lango context`: the same as the server tells, drawn for people."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.cli.running import CommandResult, run
from tests.server.routes.long_talks import LongTalk, long_talk

KEY = SessionKey("", "shop", "user", "s1")


def talked(url: str, key: SessionKey = KEY, turns: int = 6) -> list[int]:
    """Have a talk that is longer than its budget; the stored messages its last call did not get."""

    async def run_it() -> list[int]:
        async with SqlSessionStore(url) as store, long_talk(store, key) as talk:
            await talk.fill(turns)
            return await talk.not_in_request(upto=await _asked(talk))

    return asyncio.run(run_it())


async def _asked(talk: LongTalk) -> int:
    return [row.seq for row in await talk.rows() if row.role == "user"][-1]


def context(url: str, *arguments: str) -> CommandResult:
    return run("context", *arguments, "--url", url)


def read(url: str, *arguments: str) -> dict[str, Any]:
    done = context(url, *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_drawing(sqlite_url: str) -> None:
    unsent = talked(sqlite_url)
    done = context(sqlite_url, "s1", "--app", "shop")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    first, last = unsent[0], unsent[-1]
    assert lines[0][:4] == [lines[0][0], "to", "scripted:demo", "by"]
    assert re.search(r"^  budget  380 for messages", done.out, re.MULTILINE)
    (left_out, *_) = [line for line in lines if line[1:3] == ["left", "out"]]
    assert left_out[0] == f"{first}-{last}"
    assert " ".join(left_out[5:]) == f"{len(unsent)} messages: over the token budget"
    assert set(left_out[4]) == {"░"}
    (system,) = [line for line in lines if line[:1] == ["system"]]
    assert "Answer in one line." in " ".join(system)
    (tools,) = [line for line in lines if line[:1] == ["tools"]]
    assert tools[-1] == "add"
    turn = lines.index(["this", "turn:"])
    number, role, tokens, bar, *text = lines[turn + 1]
    assert (role, " ".join(text[:2]), set(bar)) == ("user", "Number 5:", {"█"})
    assert int(number) > last
    assert int(tokens) > 0
    assert "Preview of the history that the next call would get" in done.out
    assert "Earlier calls, for --call:" in done.out


def test_a_past_call(sqlite_url: str) -> None:
    talked(sqlite_url)
    newest = read(sqlite_url, "s1", "--app", "shop")
    first = newest["earlier"][-1]["call"]
    past = read(sqlite_url, "s1", "--app", "shop", "--call", first)
    assert past["call"]["call"] == first
    assert past["preview"] is None
    assert [one["number"] for one in past["call"]["sections"]] == [None, None, 1]
    drawn = context(sqlite_url, "s1", "--app", "shop", "--call", first).out
    assert drawn.startswith(f"{first} to scripted:demo by root\n")
    assert "left out" not in drawn
    assert "Preview" not in drawn


def test_json_has_the_whole_texts(sqlite_url: str) -> None:
    async def say_much() -> None:
        async with SqlSessionStore(sqlite_url) as store, long_talk(store, KEY, budget=0) as talk:
            await talk.say("y" * 5_000)

    asyncio.run(say_much())
    text = read(sqlite_url, "s1", "--app", "shop")["call"]["sections"][-1]
    assert text["text"] == "y" * 5_000


def test_either_database_and_the_servers_id(store_url: str, tenant: str) -> None:
    key = SessionKey("", f"app_{tenant}", "user", tenant)
    talked(store_url, key, turns=1)

    async def public_id() -> str:
        async with SqlSessionStore(store_url) as store:
            return (await store.summary(key)).public_id

    for wanted in ([tenant, "--app", key.app_name], [asyncio.run(public_id())]):
        assert read(store_url, *wanted)["call"]["agent"] == "root"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["s2"], "Session s2 not found. Run `lango sessions list --url sqlite:"),
        (["s1", "--app", "other"], "Session s1 in other not found."),
        (["s1", "--app", "shop", "--user", "bob"], "Session s1 of bob in shop not found."),
        (["s1", "--tenant", "acme"], "Session s1 not found."),
        (["s1", "--app", "shop", "--call", "mc_0"], "no such model call"),
        (["s1", "--app", "shop", "--call", "\udcff"], "no such model call"),
        (["\udcff"], "holds a control character or a lone surrogate"),
    ],
    ids=["none", "other-app", "other-user", "other-tenant", "no-call", "odd-call", "odd-session"],
)
def test_what_is_not_there(
    arguments: list[str],
    expected: str,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where no settings are
    talked(sqlite_url, turns=1)
    done = context(sqlite_url, *arguments)
    assert done.code == 1
    assert expected in done.err
    assert done.out == ""


def test_a_session_is_found_by_its_own_id_in_any_app(sqlite_url: str) -> None:
    for app, user in (("shop", "ann"), ("post", "bob")):
        talked(sqlite_url, SessionKey("", app, user, f"only-{app}"), turns=1)
        talked(sqlite_url, SessionKey("", app, user, "both"), turns=1)
    assert context(sqlite_url, "only-post").code == 0
    assert context(sqlite_url, "both", "--user", "bob").code == 0
    done = context(sqlite_url, "both")
    assert done.code == 1
    assert "Several sessions are called both: pass --app, --user, or ses_" in done.err


def test_a_session_without_a_call(sqlite_url: str) -> None:
    async def create() -> None:
        async with SqlSessionStore(sqlite_url) as store:
            await store.create(KEY)

    asyncio.run(create())
    done = context(sqlite_url, "s1", "--app", "shop")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "No model has been called in this session."
