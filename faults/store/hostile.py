"""G16: hostile payloads on both databases: stored as `normalise` defines, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types

from faults.harness import Guarantee, Outcome, Run, new_tenant, whole
from faults.store.fates import kept_as
from faults.store.payloads import IDS, payloads
from lango.adk.sessions.normalise import normalise
from lango.errors import LangoError
from lango.testing.same import differences

USER: Final = "user"
VOLLEY: Final = 30
"""Payloads that share a session."""

Fates = dict[str, str]
"""The fate of each payload on one database: "kept", or the error that refused it."""


class Station:
    """One database under test: a service that writes and another that reads."""

    def __init__(self, url: str, outcome: Outcome, workspace: str) -> None:
        tenant = new_tenant()
        self.writer = whole(url, tenant)
        self.reader = whole(url, tenant)
        self.outcome = outcome
        self.workspace = workspace
        self.fates: Fates = {}

    async def fire(self, volley: list[tuple[str, Event]], number: int) -> None:
        """Append the events to one session, which must stay usable, and read it back."""
        session = await self.writer.create_session(
            app_name=f"app-{number}", user_id=USER, session_id="session"
        )
        kept: list[tuple[str, Event]] = []
        state: dict[str, Any] = {}
        for name, event in [*volley, ("an ordinary event", _ordinary())]:
            expected, delta = _expected(event)  # before ADK trims the event
            fate = await self._tried(name, self._append_twice(session, event))
            if name in self.fates:
                raise RuntimeError(f"two payloads are called {name!r}")
            self.fates[name] = fate
            if fate == "kept":
                kept += [(name, stored) for stored in expected]
                state |= delta
        self.fates.pop("an ordinary event")
        await self._compare(session, kept, state)

    async def _append_twice(self, session: Session, event: Event) -> None:
        await self.writer.append_event(session, event)
        await self.writer.append_event(session, event)  # the same id again changes nothing

    async def _compare(
        self, session: Session, kept: list[tuple[str, Event]], state: dict[str, Any]
    ) -> None:
        names = [name for name, _ in kept]
        try:
            loaded = await self.reader.get_session(
                app_name=session.app_name, user_id=session.user_id, session_id=session.id
            )
        except Exception as error:  # noqa: BLE001 - a session that cannot be loaded is a finding
            loaded, why = None, f"{type(error).__name__}: {error!s:.200}"
        else:
            why = "it is gone"
        if loaded is None:
            self.outcome.fail(f"{self.workspace}: no load of {names[0]} to {names[-2]}: {why}")
            return
        found = {event.id: event for event in loaded.events}
        same = [event.id for _, event in kept] == [event.id for event in loaded.events]
        self.outcome.expect(same, f"{self.workspace}: events lost or repeated around {names[0]}")
        for name, expected in kept:
            for problem in differences(expected, found.get(expected.id))[:3]:
                self.outcome.fail(f"{self.workspace}, {name}: {problem}")
        for problem in differences(state, loaded.state)[:10]:
            self.outcome.fail(f"{self.workspace}, {names[0]} to {names[-2]}: state {problem}")

    async def _tried(self, name: str, doing: Awaitable[object]) -> str:
        try:
            await doing
        except LangoError as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - an untyped error is what we look for
            self.outcome.fail(f"{self.workspace}, {name}: {type(error).__name__}: {error!s:.200}")
            return "untyped error"
        return "kept"

    async def names(self) -> None:
        """Use hostile app, user and session ids in every operation."""
        for name, text in IDS.items():
            for kind in ("app_name", "user_id", "session_id"):
                ids = {"app_name": f"app {name}", "user_id": USER, "session_id": "s", kind: text}
                what = f"{kind}: {name}"
                self.fates[what] = await self._tried(what, self._live_through(ids, what))

    async def _live_through(self, ids: dict[str, str], what: str) -> None:
        app, user, session_id = ids["app_name"], ids["user_id"], ids["session_id"]
        session = await self.writer.create_session(
            app_name=app, user_id=user, session_id=session_id or None
        )
        content = types.Content(role="user", parts=[types.Part(text="hello")])
        await self.writer.append_event(session, Event(id="e", author="user", content=content))
        loaded = await self.reader.get_session(app_name=app, user_id=user, session_id=session.id)
        listed = await self.reader.list_sessions(app_name=app, user_id=user)
        names = [(found.app_name, found.user_id, found.id) for found in listed.sessions]
        good = loaded is not None and [event.id for event in loaded.events] == ["e"]
        self.outcome.expect(good, f"{self.workspace}, {what}: not loaded")
        good = names == [(app, user, session.id)] and session.id == (session_id or session.id)
        self.outcome.expect(good, f"{self.workspace}, {what}: listed as {names}")
        await self.writer.delete_session(app_name=app, user_id=user, session_id=session.id)
        found = await self.reader.get_session(app_name=app, user_id=user, session_id=session.id)
        self.outcome.expect(found is None, f"{self.workspace}, {what}: not deleted")


def _expected(event: Event) -> tuple[list[Event], dict[str, Any]]:
    """The events that a load must return for this event, and its state delta."""
    try:
        return kept_as(event), normalise(event).actions.state_delta
    except LangoError:
        return [], {}


def _ordinary() -> Event:
    content = types.Content(role="user", parts=[types.Part(text="still here?")])
    return Event(id="ordinary", invocation_id="turn-2", author="user", content=content)


async def _under_fire(url: str, outcome: Outcome, workspace: str, most: int) -> Fates:
    station = Station(url, outcome, workspace)
    fired = list(payloads())[: most or None]
    async with station.writer, station.reader:
        for start in range(0, len(fired), VOLLEY):
            volley = [(name, make()) for name, make in fired[start : start + VOLLEY]]
            await station.fire(volley, start)
        await station.names()
    return station.fates


async def _on_both(run: Run, outcome: Outcome) -> list[Fates]:
    """Run both concurrently: one works while the other waits for its disk."""
    databases = run.databases.each().items()
    return await asyncio.gather(
        *(_under_fire(url, outcome, workspace, run.count) for workspace, url in databases)
    )


def nothing_hostile_breaks(run: Run) -> Outcome:
    """Every payload on both databases, with the same fate on each."""
    outcome = Outcome()
    sqlite_fates, postgres_fates = asyncio.run(_on_both(run, outcome))
    for name, fate in sqlite_fates.items():
        outcome.expect(
            fate == postgres_fates[name],
            f"{name}: {fate!r:.150} on SQLite, {postgres_fates[name]!r:.150} on PostgreSQL",
        )
    refused = sum(fate != "kept" for fate in sqlite_fates.values())
    outcome.note(
        f"{len(sqlite_fates)} payloads × 2 databases, {refused} refused by the same error on both"
    )
    return outcome


G16: Final = Guarantee(
    "G16",
    "hostile payloads: equal, or the same typed error; the session stays usable",
    full=0,
    ci=0,
    run=nothing_hostile_breaks,
)
