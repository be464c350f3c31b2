"""What a client of an agent does, as data, so that any process can do it on any service."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from tests.adk.runner.scripted import REQUESTS, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.adk.runners import Runner
    from google.adk.sessions.base_session_service import BaseSessionService
    from google.adk.sessions.session import Session

USER, SESSION = "user-1", "session-1"
WORDS = "and some more words to make this message about as long as people write them"
LONGER = f"{WORDS}, {WORDS}"


@dataclass(frozen=True)
class Say:
    """One user message; `stop_after` leaves the run after so many events, as a crash does."""

    text: str
    label: str = ""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    stop_after: int = 0


@dataclass(frozen=True)
class SmallTalk:
    """Many turns of small talk through the Runner, each third one followed by a mark."""

    turns: int


@dataclass(frozen=True)
class Fill:
    """Many turns of small talk put straight into the session, marks among them."""

    tag: str
    turns: int = 9


@dataclass(frozen=True)
class Mark:
    """A state-only event, as an application writes one beside the Runner."""

    state: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The result of an open call, by the name of the function that was called."""

    call: str
    response: dict[str, Any]


@dataclass(frozen=True)
class Resume:
    """Go on with an interrupted invocation."""

    label: str
    whole: bool = False


@dataclass(frozen=True)
class Rewind:
    """Undo everything from an invocation on; of a `Fill`, its turns are named `tag-number`."""

    label: str
    whole: bool = False


Step = Say | SmallTalk | Fill | Mark | Answer | Resume | Rewind


def sittings(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps that one process does: one each, beside what merely fills the session."""
    groups: list[list[Step]] = []
    for step in steps:
        if groups and (_fills(step) or all(map(_fills, groups[-1]))):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _fills(step: Step) -> bool:
    return isinstance(step, Fill | Mark)


@dataclass
class Notes:
    """What a client remembers of the events it was sent."""

    invocations: dict[str, str] = field(default_factory=dict[str, str])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    call_invocations: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[Request] = field(default_factory=list[Request])


async def perform(step: Step, runner: Runner, notes: Notes) -> None:
    """Do one step; the model requests it makes are added to `notes.requests`."""
    token = REQUESTS.set(notes.requests)
    try:
        await _perform(step, runner, notes)
    finally:
        REQUESTS.reset(token)


async def _perform(step: Step, runner: Runner, notes: Notes) -> None:
    match step:
        case Say():
            await _run(runner, notes, step)
        case SmallTalk(turns):
            for turn in range(turns):
                await _run(runner, notes, Say(f"turn {turn} {WORDS}"))
                if turn % 3 == 2:
                    await _append(runner, [_mark({"talked": turn, f"user:talk_{turn}": True})])
        case Fill(tag, turns):
            await _append(runner, filler(tag, turns, runner.agent.name))
        case Mark(state):
            await _append(runner, [_mark(state)])
        case Answer(call, response):
            result = types.FunctionResponse(id=notes.calls[call], name=call, response=response)
            await _run(runner, notes, message=types.Part(function_response=result))
        case Resume(label, whole):
            async with _loading(runner, whole):
                await _run(runner, notes, invocation=notes.invocations[label])
        case Rewind(label, whole):
            async with _loading(runner, whole):
                await runner.rewind_async(
                    user_id=USER,
                    session_id=SESSION,
                    rewind_before_invocation_id=notes.invocations.get(label, label),
                )


async def _run(
    runner: Runner,
    notes: Notes,
    say: Say | None = None,
    *,
    message: types.Part | None = None,
    invocation: str | None = None,
) -> None:
    part = types.Part(text=say.text) if say else message
    seen = 0
    run = runner.run_async(
        user_id=USER,
        session_id=SESSION,
        new_message=types.Content(role="user", parts=[part]) if part else None,
        invocation_id=invocation,
        state_delta=say.state or None if say else None,
    )
    async with aclosing(run) as events:
        async for event in events:
            _remember(event, notes, say.label if say else "")
            seen += 1
            if say and seen == say.stop_after:
                break


def _remember(event: Event, notes: Notes, label: str) -> None:
    if label:
        notes.invocations.setdefault(label, event.invocation_id)
    for call in event.get_function_calls():
        if call.name and call.id:
            notes.calls[call.name] = call.id
            notes.call_invocations[call.name] = event.invocation_id


async def load(sessions: BaseSessionService, app: str) -> Session:
    """The session as a Runner would get it."""
    session = await sessions.get_session(app_name=app, user_id=USER, session_id=SESSION)
    assert session is not None
    return session


async def _append(runner: Runner, events: list[Event]) -> None:
    session = await load(runner.session_service, runner.app_name)
    for event in events:
        await runner.session_service.append_event(session, event)


def _loading(runner: Runner, whole: bool) -> AsyncExitStack:
    return WholeSession(runner.session_service) if whole else AsyncExitStack()


class WholeSession(AsyncExitStack):
    """Loads everything inside it; a service that always does has no such door."""

    def __init__(self, service: object) -> None:
        super().__init__()
        self._service = service

    async def __aenter__(self) -> WholeSession:
        door = getattr(self._service, "whole_session", None)
        if door is not None:
            await self.enter_async_context(door())
        return self


def filler(tag: str, turns: int, agent: str) -> list[Event]:
    """Small talk, about 150 tokens a turn, with state-only events in it."""
    events = [_mark({f"{tag}_first": tag, "last_fill": tag, f"user:{tag}": 1, f"app:{tag}": 2})]
    for turn in range(turns):
        invocation = f"{tag}-{turn:03}"
        for author, role in (("user", "user"), (agent, "model")):
            content = types.Content(
                role=role, parts=[types.Part(text=f"{invocation} {author} {LONGER}")]
            )
            events.append(Event(invocation_id=invocation, author=author, content=content))
        if turn % 3 == 0:
            events.append(_mark({"filled": f"{turn}", f"{tag}_{turn}": turn}))
        if turn % 4 == 0:
            delta = {f"{tag}_within": turn, f"{tag}_list": [turn, None, {"deep": "1"}]}
            events.append(
                Event(
                    invocation_id=invocation,
                    author=agent,
                    actions=EventActions(state_delta=delta),
                )
            )
    return events


def _mark(state: dict[str, Any]) -> Event:
    return Event(author="system", actions=EventActions(state_delta=state))
