"""An existing ADK database moves over: whole, once, and the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from google.adk.events.event import Event

from lango.adk.sessions.encode import entry_of
from lango.adk.sessions.import_adk import ImportReport, import_adk
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core import failpoints
from lango.store.db import engines
from lango.store.schema.tables import artifacts, messages, sessions
from lango.store.sessions.entries import Entry, SessionKey, SessionRef
from lango.store.sessions.store import SqlSessionStore
from lango.store.transfer import adk_source
from lango.store.transfer.adk_source import BATCH, AdkSource
from lango.store.transfer.bulk_import import ForeignSession, SessionImporter
from lango.testing.same import differences
from tests.store.rows import beside, execute, said
from tests.store.transfer.adk_databases import (
    APP,
    BUSY,
    KINDS,
    USER,
    adk_service,
    empty_database,
    fill,
    kept,
    names_in_adk,
    rows_of,
    runner_on,
    say,
    session_in_adk,
)
from tests.store.turns.turn_stores import opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[dict[str, str]]:
    """One filled database of each kind, for tests that only read it."""
    folder = tmp_path_factory.mktemp("adk")
    async with AsyncExitStack() as stack:
        urls = {
            kind: await stack.enter_async_context(empty_database(kind, folder)) for kind in KINDS
        }
        for url in urls.values():
            async with adk_service(url) as service:
                await fill(service)
        yield urls


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, filled: dict[str, str]) -> str:
    """Each kind of source in turn."""
    return filled[request.param]


@pytest.fixture
def own_source(filled: dict[str, str], tmp_path: Path) -> str:
    """A source that the test may write to."""
    path = tmp_path / "adk.db"
    shutil.copy(filled["sqlite"].removeprefix("sqlite:///"), path)
    return f"sqlite:///{path}"


class Ended(BaseException):
    """The process is killed here."""


async def moved(source_url: str, store_url: str, tenant: str) -> ImportReport:
    async with AdkSource(source_url) as source, SqlSessionStore(store_url) as store:
        return await import_adk(source, store, tenant=tenant)


async def test_everything_moves_over(source: str, store_url: str, tenant: str) -> None:
    report = await moved(source, store_url, tenant)
    assert report.ok, report.problems
    assert (report.sessions, report.new_sessions, report.empty_events) == (4, 4, 1)
    assert report.events == report.added + report.empty_events
    service = SessionServiceAdapter(store_url, tenant=tenant, token_budget=None)
    async with service:
        for app, user, session_id in await names_in_adk(source):
            theirs = await session_in_adk(source, app, user, session_id)
            ours = await service.get_session(app_name=app, user_id=user, session_id=session_id)
            assert ours is not None
            assert ours.state == theirs.state
            assert differences(kept(theirs.events), ours.events) == []
            assert ours.last_update_time == pytest.approx(theirs.last_update_time, abs=1e-6)


async def test_an_imported_session_goes_on(source: str, store_url: str, tenant: str) -> None:
    await moved(source, store_url, tenant)
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        runner = runner_on(service)
        await say(runner, BUSY, 'do note {"key": "step", "value": 99}')
        session = await service.get_session(app_name=APP, user_id=USER, session_id=BUSY)
        assert session is not None
        assert session.state["step"] == 99
        listed = await service.sessions(app_name=APP, user_id=USER)
        assert [one.id for one in listed.items] == [BUSY]


async def test_it_is_as_if_every_event_had_been_appended(
    source: str, store_url: str, tenant: str
) -> None:
    """But for times and for what a rewind changed, which is kept as ADK wrote it."""
    await moved(source, store_url, tenant)
    other = f"{tenant}-2"
    theirs = await session_in_adk(source, APP, USER, BUSY)
    key = SessionKey(other, APP, USER, BUSY)
    async with SqlSessionStore(store_url) as store:
        await store.create(key)
        for event in theirs.events:
            entry = entry_of(event)[1]
            if entry is not None:
                await store.append(SessionRef(key), entry)
    imported, appended = await rows_of(store_url, tenant), await rows_of(store_url, other)
    assert [row for row in imported["sessions"] if _is_busy(row)] != []
    for row in (*imported["sessions"], *appended["sessions"]):
        for name in ("created", "last_activity", "state"):
            del row[name]
    assert [row for row in imported["sessions"] if _is_busy(row)] == appended["sessions"]
    of_busy = {row["event_id"] for row in appended["messages"]}
    assert [_without_rewind(r) for r in imported["messages"] if r["event_id"] in of_busy] == [
        _without_rewind(row) for row in appended["messages"]
    ]
    assert imported["state_changes"] == appended["state_changes"]
    names = [[row["name"] for row in rows["artifacts"]] for rows in (imported, appended)]
    assert names[0] == names[1] != []


def _is_busy(row: dict[str, Any]) -> bool:
    return (row["app_name"], row["user_id"], row["id"]) == (APP, USER, BUSY)


def _without_rewind(row: dict[str, Any]) -> dict[str, Any]:
    is_rewind = "rewind" in str(row["event"])
    return row | {"changes": None} if is_rewind else row


async def test_a_second_import_changes_nothing(source: str, store_url: str, tenant: str) -> None:
    first = await moved(source, store_url, tenant)
    before = await rows_of(store_url, tenant)
    second = await moved(source, store_url, tenant)
    assert await rows_of(store_url, tenant) == before
    assert second.ok
    assert (second.added, second.new_sessions) == (0, 0)
    assert (second.events, second.checksum) == (first.events, first.checksum)


async def test_interrupted_anywhere_it_goes_on(
    own_source: str, store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended at its first failpoint, then at its second, and so on, until it gets to the end."""
    monkeypatch.setattr(adk_source, "BATCH", 7)
    whole = f"{tenant}-whole"
    expected = await moved(own_source, store_url, whole)
    ends = 0
    report: ImportReport | None = None
    while report is None:
        countdown = itertools.count(-ends)

        def end(name: str, countdown: itertools.count[int] = countdown) -> None:
            if name.startswith("import.") and next(countdown) == 0:
                raise Ended

        monkeypatch.setattr(failpoints, "armed", end)
        try:
            report = await moved(own_source, store_url, tenant)
        except Ended:
            ends += 1
    monkeypatch.setattr(failpoints, "armed", None)
    assert ends > 10
    assert report.ok
    assert report.checksum == expected.checksum
    assert await rows_of(store_url, tenant) == await rows_of(store_url, whole)


async def test_more_than_one_page_of_everything(
    store_url: str, tenant: str, tmp_path: Path
) -> None:
    events, users = BATCH * 5 + 7, BATCH + 7
    async with empty_database("file", tmp_path) as url:
        async with adk_service(url) as service:
            await service.create_session(app_name=APP, user_id="u0", session_id="s")
        await _multiply(url, events, users)
        report = await moved(url, store_url, tenant)
    assert report.ok
    assert (report.new_sessions, report.added, report.user_states) == (users, events, users)
    async with SessionServiceAdapter(store_url, tenant=tenant, token_budget=None) as service:
        loaded = await service.get_session(app_name=APP, user_id="u0", session_id="s")
        assert loaded is not None
        assert [event.output for event in loaded.events] == list(range(events))
        state = await service.get_user_state(app_name=APP, user_id=f"u{users - 1}")
        assert state == {"n": users - 1}


async def _multiply(path: str, events: int, users: int) -> None:
    """One session with many events, and many with none, of as many users."""
    event = Event(author="clerk", invocation_id="e").model_dump(mode="json", exclude_none=True)
    event_rows = [
        {
            "id": f"event-{number:04}",
            "time": 1.7e9 + number // 100,
            "data": json.dumps(event | {"output": number, "timestamp": 1.7e9 + number // 100}),
        }
        for number in range(events)
    ]
    user_rows = [
        {"user": f"u{number}", "state": json.dumps({"n": number})} for number in range(users)
    ]
    insert_event = "insert into events values (:id, 'shop', 'u0', 's', 'e', :time, :data)"
    insert_session = (
        "insert or ignore into sessions values ('shop', :user, 's', '{}', 1.7e9, 1.7e9)"
    )
    insert_state = "insert into user_states values ('shop', :user, :state, 1.7e9)"
    async with beside(f"sqlite:///{path}") as connection:
        await connection.execute(sa.text(insert_event), event_rows)
        await connection.execute(sa.text(insert_session), user_rows)
        await connection.execute(sa.text(insert_state), user_rows)


async def test_what_is_new_in_the_source_follows(
    own_source: str, store_url: str, tenant: str
) -> None:
    await moved(own_source, store_url, tenant)
    async with adk_service(own_source) as service:
        runner = runner_on(service)
        await say(runner, BUSY, 'do note {"key": "app:currency", "value": "CHF"}')
        await service.create_session(app_name=APP, user_id="eve", session_id="new")
    report = await moved(own_source, store_url, tenant)
    assert report.ok
    assert report.new_sessions == 1
    theirs = await session_in_adk(own_source, APP, USER, BUSY)
    async with SessionServiceAdapter(store_url, tenant=tenant, token_budget=None) as service:
        ours = await service.get_session(app_name=APP, user_id=USER, session_id=BUSY)
    assert ours is not None
    assert ours.state == theirs.state
    assert ours.state["app:currency"] == "CHF"
    assert differences(kept(theirs.events), ours.events) == []


async def test_what_was_written_here_since_is_kept(
    own_source: str, store_url: str, tenant: str
) -> None:
    await moved(own_source, store_url, tenant)
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        runner = runner_on(service)
        await say(
            runner,
            BUSY,
            'do note {"key": "step", "value": 7} and note {"key": "app:currency", "value": "CHF"}',
        )
    before = await rows_of(store_url, tenant)
    report = await moved(own_source, store_url, tenant)
    assert report.ok
    assert report.continued_sessions == 1
    assert await rows_of(store_url, tenant) == before


async def test_a_session_used_on_both_sides_is_left_and_reported(
    own_source: str, store_url: str, tenant: str
) -> None:
    await moved(own_source, store_url, tenant)
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        await say(runner_on(service), BUSY, "here")
    async with adk_service(own_source) as service:
        await say(runner_on(service), BUSY, "there")
    before = await rows_of(store_url, tenant)
    report = await moved(own_source, store_url, tenant)
    assert [problem.subject for problem in report.problems] == [f"{APP} / {USER} / {BUSY}"]
    assert "have new events since the last import" in report.problems[0].reason
    assert await rows_of(store_url, tenant) == before


async def test_an_app_that_was_here_before_keeps_its_state(
    own_source: str, store_url: str, tenant: str
) -> None:
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        await service.create_session(
            app_name=APP, user_id=USER, session_id="mine", state={"app:currency": "USD"}
        )
        report = await moved(own_source, store_url, tenant)
        session = await service.get_session(app_name=APP, user_id=USER, session_id="mine")
    assert report.ok
    assert session is not None
    assert session.state["app:currency"] == "USD"
    assert session.state["app:open"] is True


async def test_a_turn_that_runs_here_is_not_disturbed(
    own_source: str, store_url: str, tenant: str
) -> None:
    await moved(own_source, store_url, tenant)
    async with opened(store_url) as stores:
        turn = await stores.submit(SessionKey(tenant, APP, USER, BUSY))
        await stores.claim(turn.session_pk, await stores.worker(APP))
    report = await moved(own_source, store_url, tenant)
    assert ["A turn is running" in problem.reason for problem in report.problems] == [True]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            sa.update(messages).where(messages.c.content == "hello").values(content="hullo"),
            "sha256",
        ),
        (sa.update(messages).where(messages.c.seq == 3).values(invocation_id="other"), "sha256"),
        (sa.update(sessions).where(sessions.c.id == BUSY).values(state={}), ""),
        (sa.delete(artifacts), "sha256"),
    ],
)
async def test_a_difference_is_found(
    own_source: str, sqlite_url: str, damage: sa.Executable, problem: str
) -> None:
    await moved(own_source, sqlite_url, "")
    async with beside(sqlite_url) as connection:
        await connection.execute(damage)
    report = await moved(own_source, sqlite_url, "")
    if problem:
        assert not report.ok
        assert problem in report.problems[0].reason
    else:  # the state of a session without new turns is copied again
        assert report.ok


async def test_a_session_that_cannot_be_read_does_not_hold_up_the_rest(
    own_source: str, store_url: str, tenant: str
) -> None:
    await execute(
        own_source,
        "insert into sessions select app_name, user_id, 'b3', state, create_time, update_time "
        "from sessions where id = 'b2'",
        "insert into sessions select app_name, user_id, 'b' || char(10), state, create_time, "
        "update_time from sessions where id = 'b2'",
        "insert into events select id, app_name, user_id, 'b3', invocation_id, timestamp, '{' "
        "from events where session_id = 'b1'",
        """update events set event_data = '{"author": {"no": "text"}}' where session_id = 'b1'""",
        "insert into user_states select app_name, 'eve' || char(0), state, update_time "
        "from user_states where user_id = 'bob'",
    )
    report = await moved(own_source, store_url, tenant)
    reasons = {problem.subject.rpartition(" / ")[2]: problem.reason for problem in report.problems}
    assert reasons.keys() == {"b1", "b3", "b\n", "eve\0"}
    assert "author" in reasons["b1"]
    assert "is not JSON" in reasons["b3"]
    assert "control character" in reasons["b\n"]
    assert "control character" in reasons["eve\0"]
    rows = await rows_of(store_url, tenant)
    assert {row["id"] for row in rows["sessions"]} == {BUSY, "b2"}


async def test_an_import_waits_for_a_slow_source(
    store_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_TIMEOUT", 1)
    key = SessionKey(tenant, APP, USER, "slow")

    async def batches() -> AsyncGenerator[list[Entry]]:
        yield [said("e1")]
        await asyncio.sleep(2)
        yield [said("e2")]

    async with SqlSessionStore(store_url) as store:
        importer = SessionImporter(store)
        await importer.import_session(ForeignSession(key, {}, 0.0, 0.0), batches)
        async with importer.stored(key) as copy:
            await asyncio.sleep(2)
            assert [len(page) async for page in copy.pages(copy.entries)] == [2]
