"""Closes the history of a turn that cannot continue, so that the session stays valid.

The ids of new events derive from the events they follow, so closing is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.durable.calls.open_calls import decided_calls, open_calls
from lango.adk.durable.child_agents import child_id
from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.journal import CLOSED
from lango.adk.durable.ledger import INTERRUPTED, as_response
from lango.adk.durable.repairs import REJECTED
from lango.adk.durable.resume import load
from lango.core.turns.events import (
    Answer,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
)
from lango.core.turns.inputs import message_or_answers
from lango.store.sessions.entries import SessionKey
from lango.store.turns.ledger import Finished, key_of_call
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn

_UNKNOWN: Final = Finished({"error": INTERRUPTED}, {})
_REFUSED: Final = Finished({"error": REJECTED}, {})


@dataclass(frozen=True, slots=True)
class _Open:
    """An open call."""

    event: Event
    call: types.FunctionCall
    key: str  # of its run in the ledger
    otherwise: Finished = _UNKNOWN  # the answer, if the ledger has none

    def answer(self, ledger_results: Mapping[str, Finished]) -> Finished:
        """The ledger's result of the run; a long-running call's return value is not its answer."""
        elsewhere = self.call.id in (self.event.long_running_tool_ids or ())
        return self.otherwise if elsewhere else ledger_results.get(self.key, self.otherwise)


async def close_history(
    sessions: ClaimedSessions, session: Session, message_id: str
) -> list[Event]:
    """Answer every open call of an invocation: with the ledger's result, or as unknown.

    A call that a person has decided on is open until its tool's own response is stored. Questions
    of earlier turns of the invocation that still wait for a person stay open; so does a question
    whose answer this turn did not store. Returns the events it wrote.
    """
    own_events = [
        event for event in session.events if event.invocation_id == sessions.invocation_id
    ]
    return await _answer_all(
        sessions, session, own_events, _open_questions(sessions, own_events, message_id)
    )


def _closing(turn: Turn) -> str:
    """The id suffix of the answers with which a turn closes calls; another may close the rest."""
    return f"{CLOSED}{turn.number}"


def before_closing(events: Iterable[Event], turn: Turn) -> list[Event]:
    """The events without those that an earlier attempt wrote to close the turn's history."""
    return [event for event in events if not event.id.endswith(_closing(turn))]


def _open_questions(
    sessions: ClaimedSessions, own_events: Sequence[Event], message_id: str
) -> set[str]:
    turn = sessions.claim.turn
    if turn.answers is None:
        return set()
    index = next((n for n, event in enumerate(own_events) if event.id == message_id), None)
    questions = {call for event in own_events[:index] for call in event.long_running_tool_ids or ()}
    if index is None:
        return questions
    answered = {
        answer.call_id for answer in message_or_answers(turn.input) if isinstance(answer, Answer)
    }
    return questions - answered - {turn.answers}


async def _answer_all(
    sessions: ClaimedSessions, session: Session, events: Sequence[Event], but: Collection[str]
) -> list[Event]:
    by_event: dict[str, list[_Open]] = {}
    for open_call in _all_open(events):
        if open_call.call.id not in but:
            by_event.setdefault(open_call.event.id, []).append(open_call)
    if not by_event:
        return []
    ledger_results = await sessions.ledger.results(sessions.claim, sessions.invocation_id)
    answers: list[Event] = []
    for calls in by_event.values():
        for open_call in calls:  # children first: an answered call is not visited again
            await _close_child(sessions, open_call.call.id or "")
        name = calls[0].event.id + _closing(sessions.claim.turn)
        answers.append(_answer(name, calls, ledger_results))
        await sessions.append_event(session, answers[-1])
    return answers


def _all_open(events: Sequence[Event]) -> Iterator[_Open]:
    for event, call in open_calls(events):
        yield _Open(event, call, key_of_call(call.id or ""))
    for event, call, approved in decided_calls(events):
        key = key_of_call(call.id or "", confirmed=True)
        yield _Open(event, call, key, _UNKNOWN if approved else _REFUSED)


async def _close_child(sessions: ClaimedSessions, call_id: str) -> None:
    """Close the child session of a call that runs an agent, if it exists."""
    name, turn_session = child_id(sessions.invocation_id, call_id), sessions.claim.turn.session
    key = SessionKey(turn_session.tenant, turn_session.app_name, turn_session.user_id, name)
    child_sessions = ClaimedSessions(sessions, sessions.claim, name)
    session = await load(child_sessions, key)
    if session is not None:
        await _answer_all(child_sessions, session, list(session.events), ())


def _answer(name: str, calls: Sequence[_Open], ledger_results: Mapping[str, Finished]) -> Event:
    """One event with the answers to the calls of one event."""
    event, results = calls[0].event, [open_call.answer(ledger_results) for open_call in calls]
    responses = [
        types.FunctionResponse(
            id=open_call.call.id, name=open_call.call.name, response=as_response(result.result)
        )
        for open_call, result in zip(calls, results, strict=True)
    ]
    changes = {
        kind: {key: to for result in results for key, to in result.actions.get(kind, {}).items()}
        for kind in ("state_delta", "artifact_delta")
    }
    parts = [types.Part(function_response=response) for response in responses]
    return Event(
        id=name,
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        node_info=event.node_info.model_copy(),
        content=types.Content(role="user", parts=parts),
        actions=EventActions.model_validate(changes),
    )


def unfinished(logged: Iterable[LoggedEvent]) -> dict[str, str]:
    """The messages that have only deltas in a log, each with its text; thoughts add no text."""
    drafts: dict[str, str] = {}
    for event in logged:
        message = str(event.data.get("message", ""))
        if event.type in (MessageDelta.type, ReasoningDelta.type):
            text = str(event.data["text"]) if event.type == MessageDelta.type else ""
            drafts[message] = drafts.get(message, "") + text
        elif event.type in (MessageCompleted.type, MessageReset.type):
            drafts.pop(message, None)
    return drafts


async def keep_unfinished(
    sessions: ClaimedSessions, session: Session, drafts: Mapping[str, str], speaker: str
) -> str:
    """Store the partial text of interrupted messages, as a live turn does; return all of it."""
    complete = {event.id for event in session.events if not event.interrupted}
    cut_off = {id_: text for id_, text in drafts.items() if text and id_ not in complete}
    own_events = [
        event for event in session.events if event.invocation_id == sessions.invocation_id
    ]
    last = next((event for event in reversed(own_events) if event.author == speaker), Event())
    for id_, text in cut_off.items():
        partial = Event(
            id=id_,
            invocation_id=sessions.invocation_id,
            author=speaker,
            branch=last.branch,
            isolation_scope=last.isolation_scope,
            node_info=last.node_info.model_copy(
                update={"output_for": None, "message_as_output": None}
            ),
            content=types.ModelContent(text),
            interrupted=True,
        )
        await sessions.append_event(session, partial)
    return "\n\n".join(cut_off.values())


def speaker_after(events: Sequence[Event], root: str) -> str:
    """The agent that was speaking when the events broke off: a log does not name it."""
    last = next((event for event in reversed(events) if event.author != "user"), None)
    if last is None:
        return root
    state = last.actions.agent_state or {}
    return last.actions.transfer_to_agent or state.get("current_sub_agent") or last.author
