"""Copies an existing ADK database into lango's store, then compares the two.

Each session is copied in one transaction, then read back: the number of entries and a checksum over
all of them must match the source. The states of apps and users follow. An interrupted import
resumes when it is run again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from google.adk.events.event import Event
from pydantic import ValidationError

from lango.adk.sessions.encode import entry_of
from lango.adk.sessions.import_check import Fingerprint, fingerprint_of_stored
from lango.core.ids import check_id
from lango.core.values import JsonObject, storable_json
from lango.errors import (
    ImportSourceError,
    InvalidIdError,
    SessionBusyError,
    SessionExistsError,
)
from lango.store.db.retry import retrying
from lango.store.sessions.entries import Entry, SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.transfer.adk_source import AdkSource, SourceSession
from lango.store.transfer.bulk_import import ForeignSession, ImportResult, SessionImporter

Watch = Callable[[int], None]
"""Called with the number of events copied since the last call."""

MAX_PROBLEMS: Final = 100
_STATE_BATCH: Final = 100
_NOT_THIS_SESSION: Final = (
    ImportSourceError,
    InvalidIdError,
    SessionBusyError,
    SessionExistsError,
    ValidationError,
)


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """Something that was not imported, or differs from the source."""

    subject: str
    reason: str


@dataclass(slots=True)
class ImportReport:
    """The results of an import."""

    sessions: int = 0
    new_sessions: int = 0
    continued_sessions: int = 0  # changed here since an earlier import, and left as they are
    events: int = 0
    empty_events: int = 0  # without content, so they are not stored
    added: int = 0
    app_states: int = 0
    user_states: int = 0
    checksum: str = ""
    problem_count: int = 0
    problems: list[ImportProblem] = field(default_factory=list[ImportProblem])

    @property
    def ok(self) -> bool:
        """Whether everything in the source is here, unchanged."""
        return self.problem_count == 0

    def add_problem(self, subject: str, reason: str) -> None:
        """Record a problem; only the first MAX_PROBLEMS are kept."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(ImportProblem(subject, reason))


async def import_adk(
    source: AdkSource,
    store: SqlSessionStore,
    *,
    tenant: str = "",
    watch: Watch = lambda _events: None,
) -> ImportReport:
    """Copy everything in `source` to the tenant, and compare the copy with the source."""
    run = _Import(source, store, tenant, watch)
    await run.copy_sessions()
    await run.copy_states()
    await run.check_states()
    await run.check_counts()
    return run.report


class _Import:
    def __init__(
        self, source: AdkSource, store: SqlSessionStore, tenant: str, watch: Watch
    ) -> None:
        self.report = ImportReport()
        self._source = source
        self._store = store
        self._importer = SessionImporter(store)
        self._tenant = tenant
        self._watch = watch
        self._checksum = Fingerprint()
        self._used_apps: dict[str, bool] = {}
        self._refused_states: set[SessionKey] = set()

    async def copy_sessions(self) -> None:
        """Copy every session with its events and its own state; compare each after its commit."""
        async with aclosing(self._source.sessions()) as sessions:
            async for session in sessions:
                self.report.sessions += 1
                try:
                    await self._copy(session)
                except _NOT_THIS_SESSION as error:
                    self.report.add_problem(_name(session), _why(error))
        self.report.checksum = self._checksum.hex()

    async def _copy(self, session: SourceSession) -> None:
        key = SessionKey(self._tenant, session.app_name, session.user_id, session.id)
        state = storable_json(session.state)
        foreign = ForeignSession(key, state, session.created, session.updated)
        reading = _Reading()

        def entries() -> AsyncGenerator[list[Entry]]:
            nonlocal reading
            reading = _Reading()  # a retry reads the session from its start
            return self._entries(session, reading)

        imported = await self._importer.import_session(foreign, entries)
        self._count(session, reading, imported)
        await retrying(lambda: self._check(session, foreign, reading.expected))

    async def _entries(
        self, session: SourceSession, reading: _Reading
    ) -> AsyncGenerator[list[Entry]]:
        async with aclosing(self._source.event_batches(session)) as batches:
            async for batch in batches:
                yield [entry for event in batch if (entry := reading.entry_of(event)) is not None]
                self._watch(len(batch))

    def _count(self, session: SourceSession, reading: _Reading, imported: ImportResult) -> None:
        self.report.events += reading.events
        self.report.empty_events += reading.events - reading.expected.entries
        self.report.added += imported.added
        self.report.new_sessions += imported.is_new
        if imported.continued:
            self.report.continued_sessions += 1
            self._used_apps[session.app_name] = True

    async def _check(
        self, session: SourceSession, foreign: ForeignSession, expected: Fingerprint
    ) -> None:
        """Read the session back, and record a problem if it differs."""
        async with self._importer.stored(foreign.key) as copy:
            actual = await fingerprint_of_stored(self._store, foreign.key, copy, expected.entries)
        if actual != expected:
            self.report.add_problem(_name(session), f"Here are {actual}, in the source {expected}.")
        if copy.entries == expected.entries and copy.state != foreign.state:
            self.report.add_problem(_name(session), "Its state is not the same here.")
        self._checksum.add_text(expected.hex())

    async def copy_states(self) -> None:
        """Copy the states of apps and users; for an app in use here, only what is missing."""
        async with aclosing(self._states()) as states:
            async for batch in states:
                for used in (False, True):
                    selection = [
                        (key, storable_json(state))
                        for key, state in batch
                        if await self._is_used(key.app_name) is used and self._may_be_kept(key)
                    ]
                    if selection:
                        await self._importer.import_states(selection, overwrite=not used)

    def _may_be_kept(self, key: SessionKey) -> bool:
        try:
            check_id("app name", key.app_name)
            if key.user_id:
                check_id("user id", key.user_id)
        except InvalidIdError as error:
            if key not in self._refused_states:
                self._refused_states.add(key)
                self.report.add_problem(_scope(key), str(error))
            return False
        return True

    async def _states(self) -> AsyncGenerator[list[tuple[SessionKey, JsonObject]]]:
        """App states, under a key without a user, then user states, in batches."""
        batch: list[tuple[SessionKey, JsonObject]] = []
        async with aclosing(self._source.app_states()) as app_states:
            async for app_name, state in app_states:
                batch.append((SessionKey(self._tenant, app_name, "", ""), state))
        async with aclosing(self._source.user_states()) as user_states:
            async for app_name, user_id, state in user_states:
                batch.append((SessionKey(self._tenant, app_name, user_id, ""), state))
                if len(batch) >= _STATE_BATCH:
                    yield batch
                    batch = []
        yield batch

    async def _is_used(self, app_name: str) -> bool:
        """Whether the app has sessions here, or events in them, that the source lacks."""
        if app_name not in self._used_apps:
            stored_sessions = await self._importer.count_sessions(self._tenant, app_name)
            source_sessions = await self._source.count_sessions(app_name)
            self._used_apps[app_name] = stored_sessions > source_sessions
        return self._used_apps[app_name]

    async def check_states(self) -> None:
        """Compare the states of apps and users."""
        async with aclosing(self._states()) as states:
            async for batch in states:
                for key, state in batch:
                    if self._may_be_kept(key):
                        await self._check_state(key, storable_json(state))

    async def _check_state(self, key: SessionKey, state: JsonObject) -> None:
        app_state, user_state = await self._importer.shared_states(key)
        stored_state = user_state if key.user_id else app_state
        self.report.user_states += bool(key.user_id)
        self.report.app_states += not key.user_id
        newer = await self._is_used(key.app_name)
        if any(
            name not in stored_state or not (newer or stored_state[name] == state[name])
            for name in state
        ):
            self.report.add_problem(_scope(key), "Its state is not the same here.")

    async def check_counts(self) -> None:
        """Record a problem if the source was written to during the import."""
        counted = (self.report.sessions, self.report.events)
        total = await self._source.count()
        if self.report.ok and total != counted:
            self.report.add_problem(
                "the source",
                f"It has {total[1]:,} events in {total[0]:,} sessions now, and had {counted[1]:,} "
                f"in {counted[0]:,}: stop what writes to it and run the import again.",
            )


class _Reading:
    """One pass over a session's events: their number, and what the store should return."""

    def __init__(self) -> None:
        self.events = 0
        self.expected = Fingerprint()

    def entry_of(self, data: JsonObject) -> Entry | None:
        self.events += 1
        clean, entry = entry_of(Event.model_validate(data))
        if entry is not None:
            self.expected.add_entry(clean, entry)
        return entry


def _name(session: SourceSession) -> str:
    return f"{session.app_name} / {session.user_id} / {session.id}"


def _scope(key: SessionKey) -> str:
    return f"{key.app_name} / {key.user_id}" if key.user_id else key.app_name


def _why(error: Exception) -> str:
    """What is wrong with a session, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        location = ".".join(map(str, first["loc"]))
        return f"It has an event that this ADK cannot read: {location}: {first['msg']}"
    return str(error)
