"""Closes the history of a turn that will not run again, without its agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from google.adk.sessions.session import Session

from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.closing import close_history, keep_unfinished, speaker_after, unfinished
from lango.adk.durable.resume import load, since_message
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.turn_events import TurnReader
from lango.core.failpoints import failpoint
from lango.core.turns.events import GivenUp, Publish, TurnEvent
from lango.errors import TurnError
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import TurnLog
from lango.store.turns.rows import Claim, user_event_id


async def give_up(
    sessions: ClaimedSessions, verdict: GivenUp, speaker: Callable[[Session], str]
) -> GivenUp:
    """Close the history of a claimed turn; return the verdict with its partial text and usage.

    A turn that wrote nothing has nothing to close: a call that it was to answer stays open, and
    can be answered again.
    """
    turn = sessions.claim.turn
    session = await load(sessions, turn.session)
    if session is None:  # deleted with its turn: closing the turn detects that
        return verdict
    message_id = user_event_id(turn.id)
    drafts = unfinished(await TurnLog(sessions.store.database).read_all(turn))
    text = await keep_unfinished(sessions, session, drafts, speaker(session))
    failpoint("turn.kept")
    await close_history(sessions, session, message_id)
    reader = TurnReader()
    for event in since_message(sessions, session, message_id):
        list(reader.read(event))
    failpoint("turn.given_up")
    return replace(verdict, text=text, usage=reader.usage)


class UnloadedApp:
    """Stands in for an app that no worker has loaded: its turns can be closed, but not run."""

    fingerprint = ""
    remembers = False
    embedder = None

    def __init__(self, store: SqlSessionStore) -> None:
        self.store = store

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Close the history of a claim's turn; the verdict is its end."""
        del abort, publish
        key = claim.turn.session
        if claim.verdict is None:
            raise TurnError(f"The app {key.app_name!r} is not loaded here.")
        service = SessionServiceAdapter(
            self.store, tenant=key.tenant, token_budget=None, root_agent_name=key.app_name
        )
        sessions = ClaimedSessions(service, claim)
        yield await give_up(
            sessions, claim.verdict, lambda session: speaker_after(session.events, key.app_name)
        )
