"""Summaries of long conversations, by ADK's compaction, in a claimed turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from time import monotonic
from typing import Final

from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps.app import App
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.apps.compaction import summarizer_of
from lango.adk.compat.contents import summary_model
from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.summary_range import events_to_summarise, events_tokens, open_message
from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.caller import ModelCaller, claimed_turn, current_caller
from lango.adk.models.usage import usage_of
from lango.adk.plugins.model_calls import ModelCallsPlugin
from lango.adk.plugins.records import record_of
from lango.adk.transfers import root_of
from lango.core.causes import cause_of
from lango.core.context.budget import Calibration, Limits
from lango.core.context.model_calls import CallOutcome
from lango.core.failpoints import failpoint
from lango.core.messages.streams import Usage

logger = logging.getLogger(__name__)

SUMMARY_SECONDS: Final = 120.0
"""Seconds after which a turn ends without the summary."""
_SUFFIX: Final = ".summary"
_SHARE: Final = 0.8
"""The share of a model's room for the events; the rest is for the prompt around them."""
_TO_ANSWER: Final = "\n\nThe user's message, to be answered:\n\n"


class TurnRun(BasePlugin):
    """Notes the session of a turn's run, and whether its agents have ended."""

    def __init__(self, sessions: ClaimedSessions) -> None:
        super().__init__("lango_summaries")
        self._sessions = sessions
        self.session: Session | None = None
        self.has_ended = False

    @property
    def has_answered(self) -> bool:
        """Whether the turn has its answer, and does not wait for one to a call."""
        events = self.session.events if self.session else ()
        newest = next((event for event in reversed(events) if event.content), None)
        if newest is None or not self.has_ended:
            return False
        return newest.is_final_response() and not newest.get_function_calls()

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Note the session; agents that run in tools have others."""
        if self._sessions.is_own(invocation_context.session):
            self.session = invocation_context.session

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Note the end, after which ADK asks for the summary of a turn."""
        if invocation_context.session is self.session:
            self.has_ended = True


class TurnSummarizer(BaseEventsSummarizer):
    """Makes a claimed turn's summaries, each stored and recorded once, whatever dies meanwhile.

    A summary includes the one before it, so that a load needs only the newest. A conversation
    longer than the model accepts is summarised in parts, one at the end of each turn. A summary
    that fails leaves the conversation as it is, and the turn continues.
    """

    def __init__(self, app: App, sessions: ClaimedSessions) -> None:
        self.run = TurnRun(sessions)
        """A plugin that the turn's app needs."""
        self._app = app
        self._sessions = sessions
        self._turn = sessions.claim.turn
        self._ends = monotonic() + sessions.claim.time_left
        self._asked: set[str] = set()
        self._has_failed = False
        self._is_asking = False

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        """The summary of the events; None if it is stored already, or cannot be made."""
        # ADK asks before every request of a turn, also while a parallel agent's summary is made.
        if self._has_failed or self._is_asking:
            return None
        self._is_asking = True
        try:
            # The turn may have answered: it must not fail by its time limit in a summary.
            remaining = (self._ends - monotonic()) / 2
            async with asyncio.timeout(min(SUMMARY_SECONDS, remaining)):
                return await self._summary(events)
        except Exception as error:  # noqa: BLE001 - from a model, or from a summariser's code
            self._has_failed = True
            logger.warning(
                "Turn %s: its conversation could not be summarised and stays as it is: %s",
                self._turn.id,
                cause_of(error),
            )
            return None
        finally:
            self._is_asking = False

    async def _summary(self, events: Sequence[Event]) -> Event | None:
        session = self.run.session
        if session is None:
            return None
        summarizer = self._summarizer()
        model = summary_model(summarizer)
        batch = events_to_summarise(
            events, session.events, _room(model), keep_newest=not self.run.has_ended
        )
        if not batch:
            return None
        name = self._name(batch)
        if name in self._asked or any(event.id == name for event in session.events):
            return None
        self._asked.add(name)
        failpoint("summary.start")
        await self._sessions.holding.check()
        caller = self._caller(name)
        token = current_caller.set(caller)
        try:
            failpoint("model.ask")
            summary = await _asked(summarizer, model, caller, [*map(self._masked, batch)])
        finally:
            current_caller.reset(token)
        failpoint("summary.end")
        for plugin in self._recorders():
            await plugin.flush()  # the row of the call is complete before the summary is stored
        if summary is None:
            self._has_failed = model is not None  # a class of the app's may mean: not yet
            return None
        summary.id = name
        self._complete(summary, batch, session)
        return summary

    def _name(self, batch: Sequence[Event]) -> str:
        """The summary's id: the same in every attempt of the turn; a rewound one keeps its own."""
        last = next((event.id for event in reversed(batch) if event.content), "")
        return f"{last}.{self._turn.id}{_SUFFIX}"

    def _complete(self, summary: Event, batch: Sequence[Event], session: Session) -> None:
        """Let the summary hide all of its events, and repeat a message that it hides too early."""
        compaction = summary.actions.compaction
        if compaction is None:
            return
        times = [event.timestamp for event in batch]
        compaction.start_timestamp = min(compaction.start_timestamp, *times)
        if compaction.end_timestamp == times[-1]:  # ADK's takes the last one, not the newest
            compaction.end_timestamp = max(times)
        if batch[0].isolation_scope is not None or self.run.has_answered:
            return  # ADK shows a task what it is to do
        invocation_id, end = self._sessions.invocation_id, compaction.end_timestamp
        if message := open_message(session.events, invocation_id, end):
            content = compaction.compacted_content
            reminder = types.Part(text=f"{_TO_ANSWER}{message}")
            compaction.compacted_content = content.model_copy(
                update={"parts": [*(content.parts or ()), reminder]}
            )

    def _summarizer(self) -> BaseEventsSummarizer:
        """The app's own summariser, or one with the model of its first agent."""
        config = self._app.events_compaction_config
        if config is not None and config.summarizer is not None:
            return config.summarizer
        return summarizer_of(root_of(self._app))

    def _masked(self, event: Event) -> Event:
        """The event without secrets that became known after it was stored."""
        content = self._sessions.secrets.content(event.content)
        return event if content is event.content else event.model_copy(update={"content": content})

    def _caller(self, name: str) -> ModelCaller:
        key, claim = self._turn.session, self._sessions.claim
        recorders = self._recorders()
        return ModelCaller(
            (key.app_name, key.user_id, key.session_id),
            claim.turn.invocation_id,
            key.tenant,
            root_of(self._app).name,
            claim.turn.session_pk,
            self._sessions.store.database,
            claimed=claimed_turn.get(),
            kind="summary",
            call=f"mc_{sha256(f'{self._turn.id}/{name}'.encode()).hexdigest()[:32]}",
            starts=[plugin.started for plugin in recorders],
            reports=[plugin.recorded for plugin in recorders],
        )

    def _recorders(self) -> list[ModelCallsPlugin]:
        return [plugin for plugin in self._app.plugins if isinstance(plugin, ModelCallsPlugin)]


async def _asked(
    summarizer: BaseEventsSummarizer,
    model: BaseLlm | None,
    caller: ModelCaller,
    events: Sequence[Event],
) -> Event | None:
    """Ask for the summary; lango's models record their calls themselves."""
    is_foreign = model is not None and not isinstance(model, ModelAdapter)

    def note(outcome: CallOutcome, error: str = "", usage: Usage | None = None) -> None:
        caller.report(record_of(caller, model, outcome, error, usage))

    if is_foreign:
        estimated = events_tokens(events)
        started = record_of(caller, model, "started")
        await caller.start(replace(started, estimated=estimated, sent=1))
    try:
        summary = await summarizer.maybe_summarize_events(events=list(events))
    except Exception as error:
        if is_foreign:
            note("failed", type(error).__name__)
        raise
    metadata = summary.usage_metadata if summary else None
    if not caller.records and (is_foreign or metadata):
        note("completed", usage=usage_of(metadata) if metadata else None)
    return summary


def _room(model: BaseLlm | None) -> int:
    """The tokens of events that a summary's request may have."""
    window = model.context_window if isinstance(model, ModelAdapter) else None
    return int((Limits(window=window).room(Calibration()) or 0) * _SHARE)
