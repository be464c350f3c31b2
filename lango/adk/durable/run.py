"""One claimed turn, run or resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.artifacts import SqlArtifactService
from lango.adk.credentials import turn as turn_credentials
from lango.adk.credentials.service import SqlCredentialService
from lango.adk.credentials.turn import TurnCredentials
from lango.adk.durable.calls import later_results
from lango.adk.durable.calls.open_calls import open_calls
from lango.adk.durable.child_agents import ChildAgents
from lango.adk.durable.claimed.artifacts import ClaimedArtifacts
from lango.adk.durable.claimed.memory import ClaimedMemory
from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.closing import (
    before_closing,
    close_history,
    speaker_after,
)
from lango.adk.durable.delta_route import hides_partials
from lango.adk.durable.giving_up import give_up
from lango.adk.durable.journal import agent_positions, open_transfer, open_waits, unfinished_agents
from lango.adk.durable.ledger import LedgerKeeper, LedgerPlugin
from lango.adk.durable.nodes import functions as function_nodes
from lango.adk.durable.nodes import input as node_input
from lango.adk.durable.nodes.functions import NodeLedger, node_ledger
from lango.adk.durable.output_key import output_keys
from lango.adk.durable.progress import TurnProgress
from lango.adk.durable.resume import Resumed, load, resumable, since_message
from lango.adk.durable.shapes import (
    check_answerable,
    fingerprint,
    gated_if_exact,
    missing_parts,
    shape_of,
)
from lango.adk.durable.summaries import TurnSummarizer
from lango.adk.memory import SqlMemoryService
from lango.adk.models.caller import ClaimedTurn, claimed_turn
from lango.adk.models.direct_deltas import DirectDeltas
from lango.adk.runner import RESUMABLE, AgentRunner, TurnOptions
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.approvals import QUESTIONS, answer_content, approval_of
from lango.adk.turn_events import TurnReader
from lango.core.failpoints import failpoint
from lango.core.turns.events import (
    ENDS,
    Answer,
    Failed,
    GivenUp,
    Publish,
    Started,
    ToolFinished,
    TurnEvent,
)
from lango.core.turns.inputs import FileRef, files_in, message_or_answers, parts_in
from lango.core.values import json_text
from lango.errors import (
    AgentChangedError,
    ConfigError,
    KeyLimitError,
    NotResumableError,
    TurnError,
    UnknownFileError,
)
from lango.store.allowances import Allowances
from lango.store.credentials.store import Owner
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.holding import PROOF_LASTS, Holding
from lango.store.turns.model_calls import resume_calls
from lango.store.turns.rows import Claim, user_event_id


class DurableAgent:
    """An agent whose turns another process can resume.

    With `remembers`, the messages of its turns join their users' memory; its worker embeds them if
    the runner's memory service has an embedding model.
    """

    def __init__(
        self, runner: AgentRunner, store: SqlSessionStore, *, remembers: bool = False
    ) -> None:
        node_input.install_patch()
        function_nodes.install_patch()
        later_results.install_patch()
        turn_credentials.install_patch()
        self.runner = runner
        self.store = store
        self.remembers = remembers
        memory = runner.memory_service
        self.embedder = memory.embedder if isinstance(memory, SqlMemoryService) else None
        self.shape = shape_of(runner.root)
        self.fingerprint = fingerprint(runner.root)
        if not isinstance(runner.session_service, SessionServiceAdapter):
            raise ConfigError("Durable turns need lango's own session store.")
        self.sessions = runner.session_service
        self.output_keys = output_keys(runner.root)
        self.proof_lasts = PROOF_LASTS
        """Seconds for which a write proves the claim; then a model call checks it first."""
        self.agent_positions = agent_positions(runner.root)
        self.root = gated_if_exact(runner.root)
        self.hides_partials = hides_partials(runner.app)

    async def run(
        self,
        claim: Claim,
        *,
        abort: asyncio.Event | None = None,
        publish: Publish | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Run or resume a claimed turn: its events, then one end.

        Deltas go to `publish` instead, if one is given and no code of the app looks at them. The
        progress of tools is published alone.

        A claim with a verdict does not run: its history is closed, and the verdict is its end.
        Safe to call again after any crash. The turn is not closed here. Raises Fenced if another
        worker has claimed the turn.
        """
        failpoint("turn.start")
        direct = DirectDeltas(publish, abort) if publish and self.hides_partials else None
        turn = _ClaimedTurn(self, claim, direct, publish)
        if claim.verdict is not None:
            yield await turn.given_up(claim.verdict)
            return
        async with aclosing(turn.events(abort)) as events:
            async for event in events:
                if isinstance(event, ENDS):
                    failpoint("turn.unmarked")
                yield event


class _ClaimedTurn:
    def __init__(
        self,
        agent: DurableAgent,
        claim: Claim,
        direct_deltas: DirectDeltas | None,
        publish: Publish | None,
    ) -> None:
        self.agent = agent
        self.claim = claim
        self.direct_deltas = direct_deltas
        self.key = claim.turn.session
        self.message_id = user_event_id(claim.turn.id)
        self.holding = Holding(agent.store.database, claim, agent.proof_lasts)
        self.credentials = TurnCredentials(
            agent.store.credentials,
            Owner(self.key.tenant, self.key.app_name, self.key.user_id),
            claim.turn.session_pk,
            claim.turn.invocation_id,
        )
        self.progress = TurnProgress(publish, self.credentials.secrets)
        self.sessions = self._sessions_for("")
        self.sessions.output_keys = agent.output_keys
        self.sessions.agent_positions = agent.agent_positions
        self.runner = self._runner()

    def _sessions_for(self, invocation_id: str) -> ClaimedSessions:
        sessions = ClaimedSessions(self.agent.sessions, self.claim, invocation_id, self.holding)
        sessions.secrets = self.credentials.secrets
        return sessions

    def _runner(self) -> AgentRunner:
        """The agent's runner with this claim's services; its app is made resumable."""
        children = ChildAgents(self._sessions_for, gated_if_exact)
        ledger = LedgerPlugin(
            self.sessions.ledger, self.claim, children, self.credentials, self.progress
        )
        app = self.agent.runner.app
        durable_parts: dict[str, Any] = {
            "root_agent": self.agent.root,
            "resumability_config": RESUMABLE,
            "plugins": [
                LedgerKeeper(ledger, self.holding, self.direct_deltas),
                *app.plugins,
                ledger,
            ],
        }
        if app.events_compaction_config is not None:
            self.sessions.summarises = True
            summarizer = TurnSummarizer(app, self.sessions)
            durable_parts["plugins"].insert(0, summarizer.run)
            durable_parts["events_compaction_config"] = app.events_compaction_config.model_copy(
                update={"summarizer": summarizer}
            )
        durable: App = app.model_copy(update=durable_parts)
        return AgentRunner(
            durable,
            self.sessions,
            self._artifacts(),
            self._memory(),
            credential_service=self._credential_service(),
            next_turn=self.agent.runner.next_turn,
            name=app.name,
        )

    def _artifacts(self) -> BaseArtifactService | None:
        artifacts = self.agent.runner.artifact_service
        if isinstance(artifacts, SqlArtifactService):
            return ClaimedArtifacts(artifacts, self.sessions.writes)
        return artifacts

    def _credential_service(self) -> SqlCredentialService | None:
        store = self.agent.store
        if not store.credentials.enabled:
            return None
        return SqlCredentialService(store, tenant=self.key.tenant)

    def _memory(self) -> BaseMemoryService | None:
        memory = self.agent.runner.memory_service
        if isinstance(memory, SqlMemoryService):
            return ClaimedMemory(memory, self.claim)
        return memory

    async def events(self, abort: asyncio.Event | None) -> AsyncGenerator[TurnEvent]:
        """The turn's events, from its current position."""
        if not self.claim.resumes and (limit_error := await self._over_limit()) is not None:
            yield Failed(limit_error)
            return
        problem = await self._problem() if self.claim.resumes else None
        if problem is not None:
            for turn_event in await self._close_history(TurnReader()):
                yield turn_event
            yield Failed(problem)
            return
        try:
            message = await self._message()
        except TurnError as refused:
            yield Failed(refused)
            return
        state: dict[str, Any] | None = self.claim.turn.options.get("state")
        resumed = await resumable(
            self.runner.adk, self.sessions, self.key, self.message_id, message, state
        )
        reader = await self._reader(resumed)
        for event in resumed.repaired:
            for turn_event in reader.read(event):
                yield turn_event
        async with aclosing(self._run(resumed, reader, abort)) as events:
            async for event in events:
                yield event

    async def _run(
        self, resumed: Resumed, reader: TurnReader, abort: asyncio.Event | None
    ) -> AsyncGenerator[TurnEvent]:
        secrets = self.credentials.secrets
        node_ledger.set(NodeLedger(self.sessions.ledger, self.claim, secrets))
        claimed_turn.set(await self._claimed_turn())
        has_begun = self.claim.resumes or self.claim.turn.answers is not None
        await self.credentials.load(has_begun=has_begun)
        turn_credentials.turn_credentials.set(self.credentials)
        options = TurnOptions(
            abort=abort,
            invocation_id=self.claim.turn.invocation_id,
            turn_id=self.claim.turn.id,
            attempt=self.claim.turn.attempts,
            keep_agent=self._keeps_agent(resumed),
            state=resumed.state,
            reader=reader,
        )
        run = self.runner.run(self.key.user_id, self.key.session_id, resumed.message, options)
        delivered = self._delivered(resumed, reader)
        try:
            async with aclosing(run) as events:
                async for event in events:
                    while delivered and self.sessions.message_id is None:  # the message is stored
                        yield delivered.pop(0)
                    if isinstance(event, GivenUp):
                        self.progress.close()
                        for turn_event in await self._close_history(reader):
                            yield turn_event
                    if isinstance(event, ToolFinished):
                        self.progress.end(event.call)
                    if not isinstance(event, Started):  # the claim has reported it
                        yield event
        finally:
            self.progress.close()
            node_ledger.set(None)
            claimed_turn.set(None)
            turn_credentials.turn_credentials.set(None)

    def _delivered(self, resumed: Resumed, reader: TurnReader) -> list[TurnEvent]:
        """The events in the turn's own message: the results of long-running calls.

        If an earlier attempt stored the message, the log has them or derives them from it.
        """
        if not resumed.is_new or resumed.message is None:
            return []
        invocation_id = self.claim.turn.invocation_id
        message = Event(
            id=self.message_id, invocation_id=invocation_id, author="user", content=resumed.message
        )
        return list(reader.read(message))

    async def _close_history(self, reader: TurnReader) -> list[TurnEvent]:
        """Answer the calls that a failed or cancelled run leaves open; the events to report.

        ADK leaves the calls of a failed run unanswered and hides them from the model, though their
        tools may have run.
        """
        session = await load(self.sessions, self.key)
        if session is None:  # deleted together with the turn
            return []
        answers = await close_history(self.sessions, session, self.message_id)
        return [turn_event for event in answers for turn_event in reader.read(event)]

    async def _claimed_turn(self) -> ClaimedTurn:
        """The turn with its usage so far; unfinished calls of earlier attempts are marked."""
        if not self.claim.resumes:
            return ClaimedTurn(self.holding)
        return ClaimedTurn(
            self.holding, await resume_calls(self.sessions.store.database, self.claim)
        )

    def _keeps_agent(self, resumed: Resumed) -> bool:
        """Whether the last speaker continues, regardless of `next_turn`."""
        turn = self.claim.turn
        return resumed.has_begun or turn.answers is not None or bool(turn.options.get("keep_agent"))

    async def _over_limit(self) -> KeyLimitError | None:
        """KeyLimitError if the key's cost limit is reached before the accepted turn begins."""
        turn = self.claim.turn
        if turn.key_id is None or turn.cost_limit is None:
            return None
        allowances = Allowances(self.agent.store.database)
        try:
            await allowances.check_cost(self.key.tenant, turn.key_id, turn.cost_limit)
        except KeyLimitError as limit_error:
            return limit_error
        return None

    async def _problem(self) -> TurnError | None:
        """Why a turn that lost its worker cannot resume; None if it can."""
        session = await load(self.sessions, self.key)
        turn_history = since_message(self.sessions, session, self.message_id) if session else []
        if session is None or len(turn_history) < 2:
            return None  # nothing has happened that could be repeated
        if not self.agent.shape.is_exact:
            problems = "; ".join(self.agent.shape.problems)
            return NotResumableError(
                f"The turn's worker died, and the turn cannot be resumed: {problems}."
            )
        if self.claim.ran_under != self.agent.fingerprint:
            return self._changed(turn_history)
        return None

    async def given_up(self, verdict: GivenUp) -> GivenUp:
        """Close the history of a turn that will not run again; the verdict with its partial text.

        A turn that wrote nothing has nothing to close: a call that it was to answer stays open,
        and can be answered again.
        """
        return await give_up(self.sessions, verdict, self._speaker)

    def _speaker(self, session: Session) -> str:
        """The speaking agent; before the turn's first event, the last speaker or the root agent."""
        invocation_id = self.sessions.invocation_id
        sticky = self.runner.next_turn == "sticky"
        events = [
            event for event in session.events if sticky or event.invocation_id == invocation_id
        ]
        return speaker_after(events, self.agent.runner.root.name)

    def _changed(self, turn_history: Sequence[Event]) -> AgentChangedError | None:
        """The error if a deploy removed parts the turn needs; ended agents may be missing."""
        turn_events = before_closing(turn_history, self.claim.turn)
        needed, target = unfinished_agents(turn_events), open_transfer(turn_events)
        calls = {
            call.name or "": event.author
            for event, call in open_calls(turn_events)
            if call.name not in QUESTIONS
        }
        return self._missing_error(needed | ({target} if target else set()), calls)

    def _missing_error(self, needed: set[str], calls: dict[str, str]) -> AgentChangedError | None:
        missing = missing_parts(self.agent.runner.root, needed, calls)
        if not missing:
            return None
        names = ", ".join(missing)
        return AgentChangedError(f"The agent was changed since the turn began: it lacks {names}.")

    def _check_asker(self, events: Sequence[Event]) -> None:
        """Raise AgentChangedError if the agent or tool that asked no longer exists.

        NotResumableError if the agents around it could not continue after the answer.
        """
        answers = [
            answer
            for answer in message_or_answers(self.claim.turn.input)
            if isinstance(answer, Answer)
        ]
        answered = {self.claim.turn.answers, *(answer.call_id for answer in answers)}
        askers, calls = set[str](), dict[str, str]()
        for event in events if self.agent.agent_positions else ():
            for call in event.get_function_calls():
                approval = approval_of(call, event.author)
                if call.id in answered or (approval and approval.call_id in answered):
                    askers.add(event.author)
                    name = approval.name if approval else call.name
                    calls |= {name: event.author} if name and name not in QUESTIONS else {}
        problem = self._missing_error(askers, calls)
        if problem is not None:
            raise problem
        for asker in sorted(askers):
            check_answerable(self.agent.runner.root, asker)

    async def _message(self) -> types.Content:
        """The input that the turn was submitted with, as ADK's content."""
        turn_input = message_or_answers(self.claim.turn.input)
        files = files_in(self.claim.turn.input)
        stored_parts = parts_in(self.claim.turn.input)
        parts = [types.Part.model_validate_json(json_text(part)) for part in stored_parts]
        if isinstance(turn_input, str) and not files:
            return types.Content(role="user", parts=parts or [types.Part(text=turn_input)])
        session = await load(self.sessions, self.key)
        events = session.events if session else []
        if not isinstance(turn_input, str):
            self._check_asker(events)
        stored = next((event for event in events if event.id == self.message_id), None)
        if stored is not None and stored.content is not None:
            return stored.content
        if isinstance(turn_input, str):
            file_parts = [await self._shown(file) for file in files]
            message_parts = parts or [types.Part(text=turn_input)]
            return types.Content(role="user", parts=[*message_parts, *file_parts])
        return answer_content(turn_input, events)

    async def _shown(self, file: FileRef) -> types.Part:
        """A file of the session as a part of the message, which then holds its bytes."""
        artifacts, part = self.runner.artifact_service, None
        if artifacts is not None:
            part = await artifacts.load_artifact(
                app_name=self.key.app_name,
                user_id=self.key.user_id,
                session_id=self.key.session_id,
                filename=file.name,
                version=file.version,
            )
        if part is None:
            raise UnknownFileError(f"The session does not have the file {file.name!r} any more.")
        if part.inline_data is not None and not part.inline_data.display_name:
            part.inline_data.display_name = file.name
        return part

    async def _reader(self, resumed: Resumed) -> TurnReader:
        """A reader that has read the events of earlier attempts."""
        reader = TurnReader(direct_deltas=self.direct_deltas)
        if self.claim.turn.answers is not None:
            reader.waits = await self._waits()
        for event in resumed.stored:
            list(reader.read(event))
        reader.waits |= self.sessions.unmarked
        return reader

    async def _waits(self) -> set[str]:
        """The open calls of the invocation, except those that this turn answers."""
        session = await load(self.sessions, self.key)
        own_events = [
            event
            for event in (session.events if session else [])
            if event.invocation_id == self.claim.turn.invocation_id
        ]
        turn_input = message_or_answers(self.claim.turn.input)
        answered = {answer.call_id for answer in turn_input if isinstance(answer, Answer)}
        return open_waits(own_events) - answered - {self.claim.turn.answers}
