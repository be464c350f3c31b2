"""GET /v1/sessions/{id}/export: a session to take along."""

import json
import logging
from typing import Any

import pytest

from lango.server.auth.callers import Caller
from lango.store.sessions.entries import SessionKey, StateChange
from lango.store.transfer.export import SessionExport
from lango.store.transfer.restore import NewNames, restore_session
from tests.server.eventful import eventful
from tests.server.served_apps import ServedApp


async def filled(served: ServedApp) -> str:
    """A session of ann's in which much has happened, and whose app has a state."""
    session = await served.session(title="Trip")
    key = SessionKey(served.tenant, served.agent, "ann", session)
    async with eventful(served.process.store, key) as talk:
        await talk.answer(await talk.ask())
    state = StateChange(user={"name": "Ann"}, app={"secret": "of the app"})
    await served.process.store.create(
        SessionKey(served.tenant, served.agent, "ann", "other"), state
    )
    return session


async def exported(served: ServedApp, session: str, name: str = "ann") -> list[bytes]:
    async with served.client(name) as client:
        answer = await client.get(f"/v1/sessions/{session}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/jsonl"
    named = f'attachment; filename="{session}.jsonl"'
    assert answer.headers["content-disposition"] == named
    return answer.content.splitlines(keepends=True)


def state(lines: list[bytes], scope: str) -> Any:
    body = [json.loads(line) for line in lines]
    [found] = [one for one in body if one["kind"] == "state" and one["scope"] == scope]
    return found["values"]


async def test_what_is_exported_can_be_brought_in(served: ServedApp) -> None:
    session = await filled(served)
    lines = await exported(served, session)
    to = NewNames(served.tenant, user_id="bob")
    await restore_session(served.process.store.database, lambda: iter(lines), to)
    async with served.client() as ann, served.client("bob") as bob:
        first = (await ann.get(f"/v1/sessions/{session}/messages")).json()
        [copy] = (await bob.get("/v1/sessions")).json()["sessions"]
        theirs = (await bob.get(f"/v1/sessions/{copy['id']}/messages")).json()
    assert (copy["title"], copy["alias"]) == ("Trip", session)
    assert theirs == first


async def test_the_apps_state_is_for_admins(served: ServedApp) -> None:
    served.callers["admin"] = Caller(served.tenant, None, frozenset({"admin"}), "key")
    session = await filled(served)
    by_ann, by_admin = [await exported(served, session, name) for name in ("ann", "admin")]
    assert state(by_ann, "user") == state(by_admin, "user") == {"name": "Ann"}
    assert (state(by_ann, "app"), state(by_admin, "app")) == ({}, {"secret": "of the app"})


async def test_one_that_breaks_off_has_no_end(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = await sqlite_served.session()
    result = SessionExport.lines

    async def broken(export: SessionExport) -> Any:
        async for line in result(export):
            yield line
            raise RuntimeError("the database is gone")

    monkeypatch.setattr(SessionExport, "lines", broken)
    with caplog.at_level(logging.ERROR):
        [header] = await exported(sqlite_served, session)
    assert json.loads(header)["kind"] == "lango.session"
    assert "An export ends early." in caplog.text
