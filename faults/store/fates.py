"""The fate of an appended event, computed without the store: kept, state only, or dropped."""

from __future__ import annotations

from typing import Final, Literal

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from lango.adk.sessions.normalise import normalise

Fate = Literal["kept", "state", "dropped"]

_EVERY_EVENT_HAS: Final = {"id", "timestamp", "invocation_id", "author", "content", "actions"}
_WHERE_IT_HAPPENED: Final = {"branch", "isolation_scope", "node_info"}


def fate_of(event: Event) -> Fate:
    """The fate of a normalised event."""
    others = event.__dict__.keys() - _EVERY_EVENT_HAS - _WHERE_IT_HAPPENED
    silent = EventActions().__dict__
    actions = {name for name, value in event.actions.__dict__.items() if value != silent[name]}
    if _says_something(event.content) or any(event.__dict__[name] is not None for name in others):
        return "kept"
    if actions - {"state_delta"}:
        return "kept"
    return "state" if actions else "dropped"


def _says_something(content: types.Content | None) -> bool:
    """Whether a content has a part that is not an empty text."""
    for part in (content.parts if content else None) or []:
        values = {name: value for name, value in part.__dict__.items() if value is not None}
        values.pop("thought", None)
        if values and values != {"text": ""}:
            return True
    return False


def normal_copy(event: Event) -> Event:
    """A normalised deep copy: an append changes its event."""
    return normalise(event).model_copy(deep=True)


def kept_as(event: Event) -> list[Event]:
    """What a load returns of an event appended alone; InvalidIdError as an append raises it."""
    normal = normal_copy(event)
    return [normal] if fate_of(normal) == "kept" else []
