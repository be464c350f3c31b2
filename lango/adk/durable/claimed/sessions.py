"""ADK's session service as a claimed turn uses it: every write carries the claim's epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventCompaction
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session

from lango.adk.credentials.masking import Secrets
from lango.adk.durable.calls.long_running import hide_marks
from lango.adk.durable.calls.open_calls import calls_last
from lango.adk.durable.journal import AgentPosition, is_end, mark, root_container
from lango.adk.durable.output_key import complete_output
from lango.adk.sessions.decode import compaction_of, scope_of
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import link_of
from lango.core.messages.messages import CONTROL
from lango.errors import Fenced
from lango.store.sessions.entries import (
    Appended,
    Entry,
    LoadedSession,
    SessionKey,
    SessionRef,
    StoredMessage,
)
from lango.store.sessions.load import NewestEvents
from lango.store.turns.claimed_writes import ClaimedWrites
from lango.store.turns.holding import Holding
from lango.store.turns.ledger import ToolLedger
from lango.store.turns.rows import Claim


class ClaimedSessions(SessionServiceAdapter):
    """The sessions of one claimed turn: its own, and those of agents that its tools run.

    After the claim is lost, writes raise `Fenced`, which ADK cannot catch. A resumed turn, or one
    that answers a question, loads its session whole: the journal needs all events.
    """

    def __init__(
        self,
        sessions: SessionServiceAdapter,
        claim: Claim,
        invocation_id: str = "",
        holding: Holding | None = None,
    ) -> None:
        super().__init__(
            sessions.store,
            tenant=claim.turn.session.tenant,
            token_budget=None if _needs_all_events(claim) else sessions.token_budget,
            root_agent_name=sessions.root_agent_name,
        )
        self.claim = claim
        self.invocation_id = invocation_id or claim.turn.invocation_id
        self.ledger = ToolLedger(self.store.database)
        self.writes = ClaimedWrites(self.store.database, claim)
        self.holding = holding or Holding(self.store.database, claim)
        self.message_id: str | None = None
        """The id for the user's next message: it makes a repeated append a no-op."""
        self.output_keys: dict[str, str] = {}
        self.agent_positions: dict[str, AgentPosition] = {}
        """The positions of the agents in this session's tree, for the journal."""
        self.secrets = Secrets()
        """What no event may have in clear."""
        self.summarises = False
        """Whether summaries replace older events: then all events since the last one are loaded."""
        self._newest = 0.0
        """The newest time of a row: with summaries, times are in the order of the rows."""
        self.unmarked: set[str] = set()
        """Long-running calls that must run again, and then wait for their result."""

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Raise Fenced: a session that is missing while its turn runs was deleted with it."""
        del app_name, user_id, state, session_id
        raise Fenced

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session, without the long-running marks of calls that never finished.

        Fenced if the turn's own session was deleted and another one now has its name.
        """
        session = await super().get_session(
            app_name=app_name, user_id=user_id, session_id=session_id, config=config
        )
        if session is not None:
            self._check_own(link_of(session).ref)
            if self.summarises and self.is_own(session):
                times = (row.timestamp for row in link_of(session).rows)
                self._newest = max([self._newest, *times])
        if session is not None and self.claim.resumes:
            results = await self.ledger.results(self.claim, self.invocation_id)
            # A call whose pending value is not stored runs again: the ledger returns the value.
            finished = {
                call for call, finished_call in results.items() if finished_call.result is None
            }
            self.unmarked = hide_marks(session.events, self.invocation_id, finished)
            calls_last(session.events, self.invocation_id)
            self._hide_root_end(session)
        return session

    async def _load(self, key: SessionKey) -> LoadedSession | None:
        """The window; with summaries, also all rows that no summary covers yet.

        Otherwise rows could leave the window before they are part of a summary.
        """
        loaded = await super()._load(key)
        if loaded is None or loaded.whole or not self.summarises:
            return loaded
        since = max((summary.end_timestamp for summary in _summaries(loaded.messages)), default=0.0)
        window = [row for row in loaded.messages if row.seq > loaded.window_after]
        if any(row.timestamp <= since for row in window if row.role != CONTROL):
            return loaded
        recent = await self.store.load_recent(key, NewestEvents(after=since))
        rows = {row.seq: row for row in (*loaded.messages, *(recent.messages if recent else ()))}
        return replace(loaded, messages=[rows[seq] for seq in sorted(rows)])

    def is_own(self, session: Session) -> bool:
        """Whether it is the turn's session, not one of an agent that a tool runs."""
        ref = link_of(session).ref
        return ref is not None and ref.key == self.claim.turn.session

    def _place_last(self, event: Event) -> None:
        """Move the event's time after all before it: ADK hides and orders events by their time.

        The clock of the worker that wrote those may have been ahead, and an event of a parallel
        agent has the time at which its request began.
        """
        if event.timestamp <= self._newest:
            event.timestamp = nextafter(self._newest, inf)
        self._newest = event.timestamp

    def _hide_root_end(self, session: Session) -> None:
        """Hide the root's end from ADK, in memory only; the journal still knows of it.

        ADK does not run a sequence, loop or parallel agent that has ended, but its after callback
        comes after that mark.
        """
        root = root_container(self.agent_positions)
        for event in session.events:
            if event.invocation_id == self.invocation_id and event.author == root and is_end(event):
                event.actions.end_of_agent = None
                mark(event, "end")

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append with the claim's epoch; the turn's own message gets its id here.

        Agents of a user's own class may leave out the invocation: their events are of this turn.
        Credentials are masked in the event itself, so that the turn's events do not have them.
        """
        self.secrets.mask_event(event)
        is_own = self.is_own(session)
        if not event.invocation_id and is_own:
            event.invocation_id = self.invocation_id
        if self.summarises and is_own and not event.partial:
            self._place_last(event)
        if self.message_id and event.author == "user" and event.content and not event.partial:
            event.id, self.message_id = self.message_id, None
        if not self.claim.resumes or event.partial:
            return await super().append_event(session, event)
        complete_output(self.output_keys, session.events, event)
        appended = await super().append_event(session, event)
        calls_last(session.events, self.invocation_id)
        return appended

    async def _append(self, ref: SessionRef, entry: Entry) -> Appended:
        with self.holding.proving() as proof:
            appended = await self._written(ref, entry)
            proof.counts = not appended.duplicate
        return appended

    async def _written(self, ref: SessionRef, entry: Entry) -> Appended:
        if ref.key != self.claim.turn.session:
            return await self.writes.append(ref, entry)
        self._check_own(ref)
        return await self.store.append(self.claim.ref, entry, self.claim.epoch)

    def _check_own(self, ref: SessionRef | None) -> None:
        """Raise Fenced for a new session with the old one's name: an epoch is valid for one."""
        claimed_ref = self.claim.ref
        if ref is not None and ref.key == claimed_ref.key and ref.pk not in (None, claimed_ref.pk):
            raise Fenced


def _summaries(rows: Sequence[StoredMessage]) -> Iterator[EventCompaction]:
    """Those of the session, not of a task in it."""
    return (summary for row in rows if (summary := compaction_of(row)) and not scope_of(row))


def _needs_all_events(claim: Claim) -> bool:
    """Whether the invocation's journal may need events beyond the token budget."""
    return claim.resumes or claim.turn.answers is not None
