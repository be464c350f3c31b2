"""Checks of events: append, order, state deltas, windows and rewinds."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, cast

from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.sessions.session import Session
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango.core.ids import new_id
from lango.core.turns.events import Completed
from lango.core.turns.states import NewTurn
from lango.errors import Fenced, SessionBusyError
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Claim
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers
from lango.testing.checks import (
    APP,
    SESSION,
    USER,
    Check,
    Subject,
    check,
    equal,
    raises,
    texts_of,
    true,
)


class Windowed(Protocol):
    """A service that truncates a load to a token budget."""

    def whole_session(self) -> AbstractAsyncContextManager[object]:
        """Load whole sessions inside the context."""
        ...


class Claimable(Protocol):
    """A service whose sessions a turn can hold."""

    tenant: str
    store: SqlSessionStore


@dataclass
class _RunningTurn:
    """A turn of the checked session that a worker has claimed."""

    queue: TurnQueue
    claim: Claim

    @classmethod
    async def start(cls, service: Claimable) -> Self:
        key = SessionKey(service.tenant, APP, USER, SESSION)
        turn = (await SqlTurnStore(service.store.database).submit(key, NewTurn({}))).turn
        queue = TurnQueue(service.store.database)
        return cls(queue, await _claimed(queue, turn.session_pk))

    async def take_over(self) -> None:
        """Let the worker end without closing the turn, and another worker claim it."""
        await Workers(self.queue.database).remove(self.claim.worker)
        self.claim = await _claimed(self.queue, self.claim.turn.session_pk)


async def _claimed(queue: TurnQueue, session_pk: int) -> Claim:
    worker = Worker(new_id("wrk"), {APP: ""})
    await Workers(queue.database).register(worker)
    claim = await queue.claim(session_pk, worker)
    true(claim is not None, "a new worker cannot claim the turn")
    return cast("Claim", claim)


@check()
async def append_extends_the_session_object(subject: Subject) -> None:
    """An appended event is in the caller's session immediately, and in a load."""
    session = await subject.create()
    for number in range(3):
        event = subject.event(f"text {number}", state={"count": number})
        returned = await subject.service.append_event(session, event)
        equal(returned.id, event.id, "the id of the returned event")
        equal(session.events[-1].id, event.id, "the id of the last event in memory")
        equal(session.state["count"], number, "the state in memory")
    equal(len(session.events), 3, "the number of events in memory")
    equal(
        [event.id for event in (await subject.get()).events],
        [event.id for event in session.events],
        "the ids loaded",
    )


@check()
async def events_keep_their_order(subject: Subject) -> None:
    """Events are loaded in the order of their appends, regardless of their timestamps."""
    session = await subject.create()
    stamps = [5.0, 5.0, 5.0, 4.0, 1.0, 9.0, 9.0, 0.0]
    for number, stamp in enumerate(stamps):
        await subject.say(session, f"text {number}", timestamp=stamp)
    loaded = await subject.get()
    equal(texts_of(loaded, subject.tenant), [f"text {n}" for n in range(8)], "the order")
    equal([event.timestamp for event in loaded.events], stamps, "the timestamps")


@check()
async def the_same_event_twice_is_one(subject: Subject) -> None:
    """Appending the same event again changes nothing, also through a new session object."""
    session = await subject.create()
    event = subject.event("hello", state={"count": 1})
    await subject.service.append_event(session, event.model_copy(deep=True))
    await subject.service.append_event(session, event.model_copy(deep=True))
    await subject.say(session, "next", state={"count": 2})
    await subject.service.append_event(await subject.get(), event.model_copy(deep=True))
    loaded = await subject.get()
    equal(texts_of(loaded, subject.tenant), ["hello", "next"], "the texts")
    equal(loaded.state, {"count": 2}, "the state")


@check()
async def partial_events_are_not_kept(subject: Subject) -> None:
    """A partial event is returned and not stored."""
    session = await subject.create()
    event = subject.event("frag", partial=True, state={"topic": "x", "temp:x": 1})
    returned = await subject.service.append_event(session, event)
    equal(returned.id, event.id, "the returned event")
    equal((session.events, session.state), ([], {}), "the session in memory")
    loaded = await subject.get()
    equal((loaded.events, loaded.state), ([], {}), "the loaded session")


@check()
async def temp_state_lives_in_memory(subject: Subject) -> None:
    """temp: keys are readable in the session object, and neither stored nor left in the event."""
    session = await subject.create()
    await subject.say(session, "hello", state={"temp:scratch": 1, "topic": "tea"})
    equal(session.state, {"temp:scratch": 1, "topic": "tea"}, "the state in memory")
    equal(session.events[-1].actions.state_delta, {"topic": "tea"}, "the delta in memory")
    loaded = await subject.get()
    equal(loaded.state, {"topic": "tea"}, "the loaded state")
    equal(loaded.events[-1].actions.state_delta, {"topic": "tea"}, "the loaded delta")


@check()
async def state_deltas_merge_by_key(subject: Subject) -> None:
    """A delta replaces the values of its keys and adds new keys; None is a value."""
    session = await subject.create(state={"plan": {"a": 1}, "topic": "tea", "user:name": "Ada"})
    await subject.say(session, "one", state={"plan": {"b": 2}, "user:level": 1})
    await subject.say(session, "two", state={"topic": None, "app:theme": "dark"})
    expected = {
        "plan": {"b": 2},
        "topic": None,
        "user:name": "Ada",
        "user:level": 1,
        "app:theme": "dark",
    }
    equal((await subject.get()).state, expected, "the merged state")
    equal(session.state, expected, "the state in memory")
    other = await subject.create("other", user="other")
    equal(other.state, {"app:theme": "dark"}, "what another user's session shares")


@check()
async def append_to_a_session_never_made(subject: Subject) -> None:
    """An append to a session that no service created raises SessionNotFoundError."""
    stranger = Session(id="never-made", app_name=APP, user_id=USER)
    await raises(SessionNotFoundError, subject.say(stranger, "hello"), "an append to nowhere")


@check()
async def stale_copies_append_too(subject: Subject) -> None:
    """A session loaded before another append still accepts events, ordered after that append."""
    session = await subject.create()
    early = await subject.get()
    await subject.say(session, "first", state={"a": 1})
    await subject.say(early, "second", state={"b": 2})
    await subject.say(session, "third")
    loaded = await subject.get()
    equal(texts_of(loaded, subject.tenant), ["first", "second", "third"], "the texts")
    equal(loaded.state, {"a": 1, "b": 2}, "the state")


@check()
async def appends_at_once_are_all_kept(subject: Subject) -> None:
    """Twenty concurrent appends store twenty events, and their states merge."""
    session = await subject.create()
    events = [subject.event(f"text {n}", state={f"key{n}": n}) for n in range(20)]
    await asyncio.gather(*(subject.service.append_event(session, event) for event in events))
    loaded = await subject.get()
    equal(sorted(event.id for event in loaded.events), sorted(e.id for e in events), "the ids")
    equal(len(loaded.state), 20, "the number of state keys")


def _rich_events(subject: Subject) -> list[Event]:
    """One event of each kind that a Runner creates, except function responses."""
    text = types.Part(
        text=f"{subject.tenant} thinking", thought=True, thought_signature=b"\x00\xff"
    )
    call = types.FunctionCall(id="call_1", name="search", args={"q": "tea", "n": 1, "deep": [None]})
    blob = types.Blob(mime_type="image/png", data=b"\x89PNG\x00")
    model: dict[str, Any] = {
        "author": "agent",
        "branch": "agent.helper",
        "node_info": NodeInfo(path="wf/agent@1"),
        "usage_metadata": types.GenerateContentResponseUsageMetadata(total_token_count=7),
        "finish_reason": types.FinishReason.STOP,
        "custom_metadata": {"k": [1.5, None]},
    }
    confirmation = ToolConfirmation(hint="sure?", payload={"n": 1})
    summary = types.Content(role="model", parts=[types.Part(text=f"{subject.tenant} so far")])
    compaction = EventCompaction(start_timestamp=1.0, end_timestamp=2.0, compacted_content=summary)

    def model_content(*parts: types.Part) -> types.Content:
        return types.Content(role="model", parts=list(parts))

    return [
        subject.event("hello"),
        subject.event(
            content=model_content(text, types.Part(function_call=call)),
            long_running_tool_ids={"call_1"},
            **model,
        ),
        subject.event(content=model_content(types.Part(inline_data=blob)), **model),
        subject.event(author="agent", error_code="ValueError", error_message="no such file"),
        subject.event(actions=EventActions(end_of_agent=True, agent_state={"step": 1})),
        subject.event(actions=EventActions(requested_tool_confirmations={"call_1": confirmation})),
        subject.event(actions=EventActions(transfer_to_agent="helper", artifact_delta={"a": 0})),
        subject.event(actions=EventActions(compaction=compaction)),
        subject.event(author="agent", output={"answer": 42}),
    ]


@check()
async def events_come_back_as_they_were(subject: Subject) -> None:
    """Text, reasoning, calls, data, errors, actions and outputs survive a load."""
    session = await subject.create()
    events = _rich_events(subject)
    for event in events:
        await subject.service.append_event(session, event.model_copy(deep=True))
    loaded = await subject.get()
    equal([event.id for event in loaded.events], [event.id for event in events], "the ids")
    for expected, actual in zip(events, loaded.events, strict=True):
        equal(actual, expected, f"event {expected.id}")


@check()
async def function_responses_keep_their_call(subject: Subject) -> None:
    """A function response keeps its call's id and its data; its content role may differ."""
    session = await subject.create()
    response = types.FunctionResponse(id="call_1", name="search", response={"result": [1, "two"]})
    content = types.Content(role="user", parts=[types.Part(function_response=response)])
    await subject.service.append_event(session, subject.event(author="agent", content=content))
    loaded = (await subject.get()).events[0]
    equal(loaded.author, "agent", "the author")
    equal(loaded.get_function_responses(), [response], "the responses")


@check()
async def flush_returns(subject: Subject) -> None:
    """flush() exists, and events appended before it are stored after it."""
    session = await subject.create()
    await subject.say(session, "hello")
    await subject.service.flush()
    equal(await subject.texts(), ["hello"], "the texts")


@check("state_only")
async def state_only_events_are_not_events(subject: Subject) -> None:
    """An event with only a state delta saves the state; an empty event is not stored."""
    session = await subject.create()
    await subject.say(session, "hello")
    delta = {"topic": "tea", "user:name": "Ada", "app:theme": "dark"}
    await subject.service.append_event(session, subject.event(state=delta))
    await subject.service.append_event(session, subject.event())
    equal(texts_of(session, subject.tenant), ["hello"], "the texts in memory")
    equal((len(session.events), session.state), (1, delta), "the session in memory")
    loaded = await subject.get()
    equal((len(loaded.events), loaded.state), (1, delta), "the loaded session")


@check("rewind")
async def a_rewind_takes_events_back(subject: Subject) -> None:
    """After a rewind, events from that invocation on are not loaded, and their state is undone."""
    session = await subject.create()
    for turn in range(4):
        await subject.say(
            session,
            f"turn {turn}",
            invocation_id=f"turn-{turn}",
            state={"count": turn, f"key{turn}": turn, "user:turn": turn},
        )
    actions = EventActions(rewind_before_invocation_id="turn-2")
    event = subject.event(invocation_id="rewind-1", actions=actions)
    await subject.service.append_event(await subject.get(), event)
    loaded = await subject.get()
    equal(texts_of(loaded, subject.tenant), ["turn 0", "turn 1"], "the texts after the rewind")
    state = {key: value for key, value in loaded.state.items() if value is not None}
    expected = {"count": 1, "key0": 0, "key1": 1, "user:turn": 3}
    equal(state, expected, "the state after the rewind")
    await subject.say(loaded, "again", state={"count": 9})
    equal(await subject.texts(), ["turn 0", "turn 1", "again"], "the texts after going on")


@check("windows")
async def a_window_is_the_newest_part(subject: Subject) -> None:
    """A load is truncated to the newest events; the whole session is loaded on request."""
    session = await subject.create()
    long = "word " * 2_000
    for number in range(40):
        await subject.say(session, f"{number} {long}", state={f"key{number}": number})
    cut = await subject.get()
    true(0 < len(cut.events) < 40, f"{len(cut.events)} of 40 long events were loaded")
    newest = [event.id for event in session.events[-len(cut.events) :]]
    equal([event.id for event in cut.events], newest, "the window")
    equal(len(cut.state), 40, "the number of state keys in a window")
    async with cast("Windowed", subject.service).whole_session():
        full_session = await subject.get()
    equal([event.id for event in full_session.events], [e.id for e in session.events], "the whole")


@check("windows")
async def a_window_keeps_an_unanswered_call(subject: Subject) -> None:
    """An unanswered long-running call is loaded, before the window and at its edge."""
    call = types.FunctionCall(id="call_1", name="ask", args={})
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    asking = subject.event(author="agent", content=content, long_running_tool_ids={"call_1"})
    session = await subject.create()
    await subject.say(session, "word " * 16_000)
    await subject.service.append_event(session, asking)
    for _ in range(3):
        await subject.say(session, "word " * 16_000)
        ids = [event.id for event in (await subject.get()).events]
        true(asking.id in ids, f"the unanswered call is not among {ids}")


@check("busy")
async def a_claimed_session_is_busy(subject: Subject) -> None:
    """While a turn holds the session, other writers are refused; after release they succeed."""
    session = await subject.create()
    turn = await _RunningTurn.start(cast("Claimable", subject.service))
    refused = subject.say(session, "meanwhile", state={"user:name": "Ada"})
    await raises(SessionBusyError, refused, "an append while a turn runs")
    first = turn.claim
    await turn.take_over()
    true(turn.claim.epoch > first.epoch, "a new claim has no newer epoch")
    await raises(Fenced, turn.queue.close(first, Completed()), "a close with an outdated claim")
    await raises(SessionBusyError, subject.say(session, "still"), "after an outdated close")
    await turn.queue.close(turn.claim, Completed())
    await subject.say(session, "at last")
    loaded = await subject.get()
    equal(texts_of(loaded, subject.tenant), ["at last"], "the texts")
    equal(loaded.state, {}, "the state")


EVENT_CHECKS: Final[tuple[Check, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Check)
)
