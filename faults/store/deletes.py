"""DELETE: sessions and users deleted in mid-turn, while workers are killed and frozen."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Any, Final
from uuid import uuid4

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from faults.harness import Guarantee, Outcome, Run
from faults.store.leftovers import leftovers, newest_session
from faults.turns.agents import PATIENCE
from faults.turns.processes import Crew, keep_log, run_until_stopped
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.run import DurableAgent
from lango.adk.memory import SqlMemoryService
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.errors import SessionNotFoundError
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider
from lango.store.files.contents import BytesInMemory
from lango.store.files.uploads import NewFile, SqlFileStore
from lango.store.sessions.entries import SessionKey, StateChange
from lango.store.sessions.store import SqlSessionStore
from lango.turns import event_loop
from lango.turns.worker import TurnWorker, WorkerOptions

WORKERS: Final = 2
LANES: Final = 3
"""Sessions that are deleted concurrently."""
DEAD_AFTER: Final = 1.5
DRAIN: Final = 5.0
FREEZES: Final = (0.1, 2.5)
SAVES: Final = 3
_SIZE: Final = 200_000
_OF_USER: Final = "-user-"
"""In the word of a session whose user is deleted: its turn also writes what belongs to the user."""
_MESSAGES: Final = 4  # user message, two calls in one message, their results, the answer


@dataclass(frozen=True, slots=True)
class _Lives:
    """The words of one run: of the sessions to delete, and of those that replace them."""

    run: str = field(default_factory=lambda: uuid4().hex[:12])

    @property
    def old(self) -> str:
        """The word in every text of a deleted session, and in no other text."""
        return f"old-{self.run}"

    @property
    def new(self) -> str:
        """The same for the sessions that remain."""
        return f"new-{self.run}"


# --- the agent -----------------------------------------------------------------------------------


async def keep(text: str, tool_context: ToolContext) -> dict[str, str]:
    """Save a text as several artifacts."""
    for number in range(SAVES):
        data = text.encode() + b" " * _SIZE
        part = types.Part.from_bytes(data=data, mime_type="text/plain")
        await tool_context.save_artifact(f"{text}-{number}.txt", part)
        if _OF_USER in text:
            await _keep_for_user(text, part, tool_context)
    return {"kept": text}


async def _keep_for_user(text: str, part: types.Part, tool_context: ToolContext) -> None:
    await tool_context.save_artifact(f"user:{text}.txt", part)
    tool_context.state[f"user:{text}"] = text
    fact = MemoryEntry(content=types.Content(role="user", parts=[types.Part(text=text)]))
    await tool_context.add_memory(memories=[fact])


async def note(text: str) -> dict[str, str]:
    """Note a text."""
    await asyncio.sleep(0.02)
    return {"noted": text}


for _tool in (keep, note):
    _tool.idempotent = True  # pyright: ignore[reportFunctionMemberAccess]


def _calls(*names: tuple[str, str]) -> Any:
    """A model that calls each tool with the user's last word, and then answers with that word."""

    def rule(request: ModelRequest) -> Reply:
        word = [m.content for m in request.messages if m.role == "user"][-1].split(" ")[-1]
        if request.messages[-1].is_tool:
            return Reply(f"done with {word}")
        calls = (ToolCall("", tool, input=json.dumps({argument: word})) for tool, argument in names)
        return Reply(f"to do: {word}", calls=tuple(calls))

    return rule


def _instruction(context: ReadonlyContext) -> str:
    return f"You talk with {context.state.get('name')}."


async def _remember(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    """Add to the user's memory in mid-turn, as callbacks of ADK apps do."""
    del llm_response
    await callback_context.add_session_to_memory()
    await callback_context.add_events_to_memory(events=callback_context.session.events[-3:])


def _agent() -> LlmAgent:
    def model(*names: tuple[str, str]) -> ModelAdapter:
        return ModelAdapter(ScriptedProvider(rule=_calls(*names), delay=0.01), "demo")

    helper = LlmAgent(
        name="helper", instruction=_instruction, model=model(("note", "text")), tools=[note]
    )
    return LlmAgent(
        name="root",
        instruction=_instruction,
        model=model(("keep", "text"), ("helper", "request")),
        tools=[keep, AgentTool(helper, include_plugins=True)],
        after_model_callback=_remember,
    )


def _durable(store: SqlSessionStore, app: str) -> DurableAgent:
    artifacts = SqlArtifactService(store, requires_session=True)
    sessions = SessionServiceAdapter(store)
    memory = SqlMemoryService(store, requires_session=True)
    runner = AgentRunner(_agent(), sessions, artifacts, memory, plugins=plugins(store), name=app)
    return DurableAgent(runner, store, remembers=True)


def work(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """Run the turns of the app until SIGTERM."""
    keep_log(workspace)
    del options
    event_loop.run(_work(workspace, ready))


async def _work(workspace: Workspace, ready: Event) -> None:
    async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
        apps = {workspace.app: _durable(process.store, workspace.app)}
        worker = TurnWorker(process.store, process.engine, apps, WorkerOptions())
        await run_until_stopped(worker, ready, DRAIN)


# --- the trial -----------------------------------------------------------------------------------


class _Trial:
    def __init__(self, process: TurnProcess, crew: Crew, drawn: random.Random) -> None:
        self.process, self.crew, self.drawn = process, crew, drawn
        self.lives = _Lives()
        self.blows: Counter[str] = Counter()
        self._hand = asyncio.Lock()  # one worker remains to resume turns

    async def life(self, number: int) -> str:
        """Delete a session or its user in mid-turn, then run a turn in a session of that name."""
        key = SessionKey("", self.process.workspace.app, f"user{number}", f"s{number}")
        of_user = self.drawn.random() < 0.5
        old = f"{self.lives.old}{_OF_USER if of_user else '-'}{number}"
        new = f"{self.lives.new}-{number}"
        pause, blow = self.drawn.uniform(0.0, 0.5), self.drawn.choice(("", "kill", "freeze"))
        await self._begin(key, old)
        public_id = (await self.process.store.summary(key)).public_id
        upload = asyncio.create_task(self._upload(key, public_id, old))
        await asyncio.sleep(pause)
        striking = asyncio.create_task(self._strike(blow, self.drawn.uniform(*FREEZES)))
        await asyncio.sleep(0.02)
        await self._delete(key, of_user)
        turn = await self._begin(key, new)
        await asyncio.gather(upload, striking)
        return turn

    async def _delete(self, key: SessionKey, of_user: bool) -> None:
        if of_user:
            await self.process.store.delete_user(key.tenant, key.user_id, key.app_name)
            self.blows["with the user"] += 1
        else:
            await self.process.store.delete(key)

    async def _begin(self, key: SessionKey, word: str) -> str:
        await self.process.store.create(key, StateChange({"name": word}))
        return await self.process.say(
            f"Please see to {word}", user=key.user_id, session=key.session_id
        )

    async def _upload(self, key: SessionKey, public_id: str, word: str) -> None:
        """Upload files until the session is deleted; later ones must not reach the new session."""
        files = SqlFileStore(self.process.store.database)
        with suppress(SessionNotFoundError):
            for number in range(100):
                file = NewFile(
                    f"{word}-{number}", "text/plain", BytesInMemory(word.encode() + b" " * _SIZE)
                )
                await files.save(key, file, public_id=public_id)
                await asyncio.sleep(0.01)

    async def _strike(self, blow: str, seconds: float) -> None:
        async with self._hand:
            number = self.drawn.randrange(WORKERS)
            self.blows[blow or "untouched"] += 1
            if blow == "kill":
                await self.crew.replace(number)
            elif blow == "freeze":
                frozen = self.crew.members[number]
                frozen.send(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                frozen.send(signal.SIGCONT)


async def _lives(trial: _Trial, count: int) -> list[str]:
    """Run `count` sessions, some concurrently; return the turns of those that remain."""
    numbers, begun = iter(range(count)), dict[int, str]()

    async def lane() -> None:
        for number in numbers:
            turn = begun[number] = await trial.life(number)
            # Otherwise turns pile up: workers die faster than they can run them.
            await asyncio.wait_for(trial.process.turns.wait(turn), PATIENCE)

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return [begun[number] for number in sorted(begun)]


async def _check_new(process: TurnProcess, turns: Sequence[str], outcome: Outcome) -> None:
    """Check that every remaining session has its own turn, completed."""
    async with asyncio.timeout(PATIENCE):
        for turn_id in turns:
            turn = await process.turns.wait(turn_id)
            shown = await process.store.messages(turn.session)
            name = turn.session.session_id
            outcome.expect(turn.state == "completed", f"the new {name} is {turn.state}")
            roles = [row.role for row in shown]
            outcome.expect(len(roles) == _MESSAGES, f"the new {name} has {roles}")


async def _check_nothing_left(trial: _Trial, since: int, outcome: Outcome) -> None:
    left = await trial.process.store.database.read(
        lambda connection: leftovers(connection, canaries=[trial.lives.old], since=since)
    )
    for line in left:
        outcome.fail(f"left in the database: {line}")
    for log in sorted(trial.process.workspace.folder.glob("worker-*.log")):
        if trial.lives.old in log.read_text(errors="replace"):
            outcome.fail(f"left in a worker's log: {trial.lives.old}")


async def _trial(name: str, url: str, run: Run, count: int) -> Outcome:
    outcome = Outcome()
    with temporary_workspace(url) as workspace:
        async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
            async with process.store.database.snapshot() as connection:
                since = await newest_session(connection)
            async with Crew(workspace, WORKERS, job=work) as crew:
                trial = _Trial(process, crew, random.Random(f"{run.seed} {name}"))
                turns = await _lives(trial, count)
                await _check_new(process, turns, outcome)
                await crew.dismiss()
            await _check_nothing_left(trial, since, outcome)
            blows = ", ".join(f"{n} {blow}" for blow, n in sorted(trial.blows.items()))
            outcome.note(f"{name}: {count} deletes ({blows})")
    return outcome


async def _both(run: Run) -> Outcome:
    outcome = Outcome()
    for workspace, (name, url) in enumerate(run.databases.each().items()):
        part = await _trial(name, url, run, (run.count + workspace) // 2)
        outcome.figures += part.figures
        outcome.failures += part.failures
    if not outcome.failures:
        outcome.note("nothing left in any table or log, new sessions untouched")
    return outcome


DELETE: Final = Guarantee(
    "DELETE",
    "sessions and users deleted in mid-turn leave nothing, and new sessions are untouched",
    full=300,
    ci=30,
    run=lambda run: asyncio.run(_both(run)),
)
