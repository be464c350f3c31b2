"""Stored events as ADK's API server sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.state import State
from google.genai import types

from lango import errors
from lango.adk.compat.public_events import dumped
from lango.adk.sessions.decode import EventsAdapter, moved_names
from lango.core.messages.messages import CONTROL
from lango.core.turns.events import UNSAID
from lango.core.values import JsonObject, json_text, json_value
from lango.store.sessions.entries import SessionKey, SessionRef, StoredMessage
from lango.store.sessions.history import read_all, read_invocation, seq_of
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Turn, user_event_id

_BOOKKEEPING: Final = {"agent_state": None, "end_of_agent": None}
"""Actions by which lango resumes an agent; ADK sends them only for apps that are resumable."""
APP_STATE: Final = State.APP_PREFIX
_INTERNAL: Final = "InternalError"
_OURS: Final = "lango_"
"""How the names of lango's own metadata of an event begin."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An ADK event and its sequence number in the session."""

    seq: int
    event: Event


async def turn_events(
    store: SqlSessionStore, turn: Turn, last: StoredEvent | None = None
) -> list[StoredEvent]:
    """The stored events of a turn after one of them; the first is the turn's message."""
    database = store.database
    if last is not None:
        after = last.seq
    else:
        first = await seq_of(database, turn.session_pk, user_event_id(turn.id))
        if first is None:
            return []
        after = first - 1
    rows = await read_invocation(database, turn.session_pk, turn.invocation_id, after=after)
    return await _events(store, turn.session, rows, last and last.event)


async def session_events(store: SqlSessionStore, session: SessionRef) -> list[Event]:
    """All events of a session."""
    rows = await read_all(store.database, session.pk or 0)
    return [stored_event.event for stored_event in await _events(store, session.key, rows)]


async def _events(
    store: SqlSessionStore,
    key: SessionKey,
    rows: Sequence[StoredMessage],
    last: Event | None = None,
) -> list[StoredEvent]:
    rows = list(_with_authors(rows, last))
    names = moved_names(rows)
    blobs = await store.read_blobs(key, names) if names else {}
    events = EventsAdapter(rows, key.app_name, blobs).all()
    return [StoredEvent(row.seq, event) for row, event in zip(rows, events, strict=True)]


def _with_authors(
    rows: Iterable[StoredMessage], last: Event | None = None
) -> Iterator[StoredMessage]:
    """The rows; a change of state gets the author and time of the row before it."""
    author, timestamp, invocation = "user", 0.0, ""
    if last is not None:
        author, timestamp, invocation = last.author, last.timestamp, last.invocation_id
    for row in rows:
        if row.role == CONTROL and not row.author and row.changes is not None and not row.event:
            delta = json_text({"state_delta": json_value(row.changes)})
            row_author = author if row.invocation_id == invocation else "user"
            yield row._replace(author=row_author, timestamp=timestamp, changes=delta)
        else:
            author, timestamp, invocation = row.author, row.timestamp, row.invocation_id
            yield row


def all_json(events: Iterable[Event], *, app_state: bool) -> Iterator[JsonObject]:
    """The events that ADK's clients see, as JSON; changes of the app's state with `app_state`."""
    for event in events:
        if not is_bookkeeping(event):
            fields = event_json(event)
            if not app_state:
                actions = fields["actions"]
                actions["stateDelta"] = without_app_state(actions["stateDelta"])
            yield fields


def without_app_state(state: JsonObject) -> JsonObject:
    """State without the app's, which all its users share."""
    return {key: value for key, value in state.items() if not key.startswith(APP_STATE)}


def is_bookkeeping(event: Event) -> bool:
    """Whether an event only records how far an agent is, to resume it."""
    actions = event.actions
    if event.content is not None or event.error_code or event.output is not None:
        return False
    if actions.agent_state is None and not actions.end_of_agent:
        return False
    return actions.model_copy(update=_BOOKKEEPING) == EventActions()


def event_json(event: Event) -> JsonObject:
    """One event as JSON, in ADK's field names."""
    fields = dumped(event)
    if metadata := public_metadata(fields.pop("customMetadata", None)):
        fields["customMetadata"] = metadata
    content: Any = fields.get("content")
    if content is not None and event.get_function_responses():
        content["role"] = "user"  # the store has "function"; ADK sends "user"
    if event.error_code and _is_foreign(event.error_code):
        fields |= {"errorCode": _INTERNAL, "errorMessage": UNSAID}
    return fields


def public_metadata(metadata: JsonObject | None) -> JsonObject:
    """Metadata without lango's own, which holds among others `temp:` state."""
    return {key: value for key, value in (metadata or {}).items() if not key.startswith(_OURS)}


def _is_foreign(error_code: str) -> bool:
    """Whether an error code names an exception of the agent's code, whose text is not shown.

    The codes of models and of ADK itself are in capitals.
    """
    kind = getattr(errors, error_code, None)
    is_ours = isinstance(kind, type) and issubclass(kind, errors.LangoError)
    return not (is_ours or error_code.isupper())


def as_sent(fields: JsonObject) -> list[JsonObject]:
    """An event as a stream sends it: artifacts of an event with content come in one of their own.

    ADK's web front end would show them twice otherwise.
    """
    artifacts = fields.get("actions", {}).get("artifactDelta")
    if not artifacts or not fields.get("content", {}).get("parts"):
        return [fields]
    without = fields | {"actions": fields["actions"] | {"artifactDelta": {}}}
    return [without, {name: value for name, value in fields.items() if name != "content"}]


def partial_json(
    turn: Turn, event_id: str, author: str, text: str, *, is_thought: bool, at: float
) -> JsonObject:
    """A partial event with a piece of an answer."""
    part = types.Part(text=text, thought=True) if is_thought else types.Part(text=text)
    event = Event(
        id=event_id,
        invocation_id=turn.invocation_id,
        author=author,
        content=types.Content(role="model", parts=[part]),
        partial=True,
        timestamp=at,
    )
    return dumped(event)
