"""Runs one turn of an ADK agent and yields turn events."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Literal

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App, ResumabilityConfig, validate_app_name
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.apps.compaction import Compaction
from lango.adk.apps.load import Root
from lango.adk.compat.a2a import skip_a2a
from lango.adk.compat.runners import RootRunner
from lango.adk.compat.telemetry import forget_partial_responses
from lango.adk.credentials.kinds import CREDENTIAL
from lango.adk.errors import model_failure, unknown_agent, unwrapped
from lango.adk.mcp.adk_toolsets import install_filter
from lango.adk.tools.approvals import Question, answers_by_question, content_of, questions_in
from lango.adk.traces import adk_telemetry
from lango.adk.transfers import check_names, find_agent, root_of, transfer_targets
from lango.adk.turn_events import TurnReader
from lango.core.turns.events import (
    Answer,
    Approval,
    Cancelled,
    Completed,
    End,
    Failed,
    InputRequired,
    Started,
    TurnEvent,
)
from lango.errors import AgentNotFoundError, InvalidIdError, LangoError

logger = logging.getLogger(__name__)

NextTurn = Literal["sticky", "root"]
"""Which agent gets the next message: the last speaker, or always the root."""
UserInput = str | Sequence[Answer] | types.Content
"""A turn's input: a user's message, or answers to approvals; in ADK's form or in lango's."""

with warnings.catch_warnings():  # it is experimental, so lango pins ADK
    warnings.simplefilter("ignore", UserWarning)
    RESUMABLE: Final = ResumabilityConfig(is_resumable=True)

_IN_FIXED_ORDER: Final = (
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How a turn is run."""

    streaming: bool = True
    abort: asyncio.Event | None = None  # set it to cancel the turn
    invocation_id: str | None = None  # ADK's, to set a new one or resume one
    turn_id: str = ""  # the claimed turn's, for log messages
    attempt: int = 1
    keep_agent: bool = False  # continue with the agent that spoke last, regardless of `next_turn`
    state: dict[str, Any] | None = None  # state changes that come with the message
    reader: TurnReader | None = None  # has read the earlier attempts of a resumed turn


_PLAIN: Final = TurnOptions()


class AgentRunner:
    """Runs turns of an agent, App or Workflow on the given services.

    Missing sessions are created. `next_turn` selects the agent for the next message: the last
    speaker ("sticky", ADK's default) or the root agent. `name` is ADK's app name, by default the
    App's own or the root agent's. `compaction` replaces that of an App.
    """

    def __init__(
        self,
        root: Root,
        session_service: BaseSessionService,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        *,
        credential_service: BaseCredentialService | None = None,
        plugins: Sequence[BasePlugin] = (),
        next_turn: NextTurn = "sticky",
        name: str = "",
        compaction: Compaction | None = None,
    ) -> None:
        skip_a2a()
        install_filter()
        forget_partial_responses()
        self.app = as_app(root, plugins, name, compaction)
        self.root = root_of(self.app)
        check_names(self.root)
        self.session_service = session_service
        self.artifact_service = artifact_service
        self.memory_service = memory_service
        self.next_turn: NextTurn = next_turn
        kinds = (Runner, RootRunner)
        self._sticky, self._rooted = (
            kind(
                app=self.app,
                session_service=session_service,
                artifact_service=artifact_service,
                memory_service=memory_service,
                credential_service=credential_service,
                auto_create_session=True,
            )
            for kind in kinds
        )

    async def run(
        self,
        user_id: str,
        session_id: str,
        user_input: UserInput | None,
        options: TurnOptions | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Run one turn: Started, its events, one end. `user_input` None resumes one.

        An error ends the turn as Failed and is not raised. If a failure or an abort cuts off a
        message, the session keeps its partial text, marked as interrupted.
        """
        options = options or TurnOptions()
        reader, error = options.reader or TurnReader(), None
        yield Started(options.attempt)
        try:
            message = await self._message(user_id, session_id, user_input, reader)
            run = self._runner(user_input, options).run_async(
                user_id=user_id,
                session_id=session_id,
                new_message=message,
                state_delta=options.state,
                invocation_id=options.invocation_id,
                abort_signal=options.abort,
                run_config=_config(options),
            )
            async with aclosing(run) as events:
                async for event in events:
                    for turn_event in reader.read(event):
                        yield turn_event
        except Exception as raised:  # noqa: BLE001 - every error is the turn's end
            error = self._named(raised, reader)
        await self._store_unfinished(user_id, session_id, reader.unfinished())
        yield self.end(reader, error, options)

    @property
    def adk(self) -> Runner:
        """ADK's own runner."""
        return self._sticky

    def _runner(self, user_input: UserInput | None, options: TurnOptions) -> Runner:
        begins = isinstance(user_input, str | types.Content) and not options.keep_agent
        return self._rooted if begins and self.next_turn == "root" else self._sticky

    async def _message(
        self, user_id: str, session_id: str, user_input: UserInput | None, reader: TurnReader
    ) -> types.Content | None:
        """The input for ADK; the reader gets the approvals of the turn that stay open."""
        if user_input is None or isinstance(user_input, types.Content):
            return user_input
        if isinstance(user_input, str):
            return types.UserContent(user_input)
        questions = await self.questions(user_id, session_id)
        answers = answers_by_question(user_input, questions)
        turn = questions[next(iter(answers))].turn
        still_open = {
            question_id
            for question_id in questions
            if questions[question_id].turn == turn and questions[question_id].is_open
        }
        reader.waits = still_open - answers.keys()
        return content_of(answers, questions)

    async def pending(self, user_id: str, session_id: str) -> list[Approval]:
        """The approvals that a session waits for, oldest first."""
        questions = await self.questions(user_id, session_id)
        return [
            question.approval
            for question in questions.values()
            if question.is_open and question.question != CREDENTIAL
        ]

    async def questions(self, user_id: str, session_id: str) -> dict[str, Question]:
        """Every question in a session, by its id."""
        session = await self._session(user_id, session_id)
        return questions_in(session.events) if session else {}

    async def _session(self, user_id: str, session_id: str) -> Session | None:
        return await self.session_service.get_session(
            app_name=self.app.name, user_id=user_id, session_id=session_id
        )

    async def _store_unfinished(
        self, user_id: str, session_id: str, unfinished: Sequence[Event]
    ) -> None:
        """Store interrupted messages; a failure to do so must not hide the reason for the end."""
        if not unfinished:
            return
        try:
            session = await self._session(user_id, session_id)
            if session is not None:
                for event in unfinished:
                    await self.session_service.append_event(session, event)
        except Exception:
            logger.exception("The unfinished answer in session %s was not stored.", session_id)

    def end(
        self, reader: TurnReader, error: Exception | None = None, options: TurnOptions = _PLAIN
    ) -> End:
        """The end of a turn whose events the reader has read."""
        text, usage = reader.unfinished_text, reader.usage
        if error is not None and not isinstance(error, LangoError):
            name = options.turn_id or options.invocation_id or "of an agent"
            logger.warning("Turn %s of app %s failed.", name, self.app.name, exc_info=error)
        if reader.aborted or (error and options.abort and options.abort.is_set()):
            return Cancelled(text, usage)
        error = error or reader.stopped()
        if error is not None:
            return Failed(error, text, usage)
        if reader.waits:
            return InputRequired(tuple(sorted(reader.waits)), usage)
        return Completed(usage)

    def _named(self, error: Exception, reader: TurnReader) -> Exception:
        """lango's error for an unknown agent or a failed model; others as they were raised."""
        error = unwrapped(error)
        if isinstance(error, LangoError):
            return error
        replacement, name = model_failure(error), unknown_agent(error)
        if name is not None:
            agent = find_agent(self.root, reader.passed_on_by)
            replacement = AgentNotFoundError(name, transfer_targets(agent) if agent else ())
        if replacement is None:
            return error
        replacement.__cause__ = error
        return replacement

    async def close(self) -> None:
        """Close toolsets and plugins; the owner of the services closes those."""
        await self._sticky.close()


def as_app(
    root: Root,
    plugins: Sequence[BasePlugin] = (),
    name: str = "",
    compaction: Compaction | None = None,
) -> App:
    """The App to run: the given one with these plugins added, or a new one.

    A sequence, loop or parallel agent is made resumable: otherwise it would end, after an
    approval, with the agent that asked.
    """
    name = name or (root.name if isinstance(root, App) else root.name.strip("_"))
    try:
        validate_app_name(name)
    except ValueError as error:
        raise InvalidIdError(str(error)) from error
    if isinstance(root, App):
        names = {plugin.name for plugin in root.plugins}
        new = [plugin for plugin in plugins if plugin.name not in names]
        changed: dict[str, Any] = {"name": name, "plugins": [*root.plugins, *new]}
        if compaction is not None:
            changed["events_compaction_config"] = compaction
        return root.model_copy(update=changed)
    return App(
        name=name,
        root_agent=root,
        plugins=list(plugins),
        events_compaction_config=compaction,
        resumability_config=RESUMABLE if isinstance(root, _IN_FIXED_ORDER) else None,
    )


def _config(options: TurnOptions) -> RunConfig:
    streaming = "sse" if options.streaming else None
    return RunConfig.model_validate({"streaming_mode": streaming, "telemetry": adk_telemetry()})
