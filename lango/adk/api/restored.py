"""Events of a session that a client restores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from pydantic import ValidationError

from lango.adk.api.contents import (
    MAX_PARTS,
    FileLimits,
    checked_size,
    count_parts,
    problems_of,
)
from lango.adk.api.events import public_metadata
from lango.adk.compat.public_events import as_restored
from lango.adk.sessions.encode import entry_of
from lango.adk.tools.approvals import QUESTIONS
from lango.core.values import JsonObject, json_text
from lango.errors import UnsupportedRequestError

MAX_EVENTS: Final = 1_000
"""Events of a session that is restored: each is validated on the event loop, and then stored."""


@dataclass(frozen=True, slots=True)
class RestoredEvents:
    """Events that can be stored, and what they take of the quotas."""

    events: tuple[Event, ...] = ()
    tokens: int = 0
    size: int = 0  # bytes of their data


NO_EVENTS: Final = RestoredEvents()


def read_events(events: Sequence[JsonObject], files: FileLimits) -> RestoredEvents:
    """The events in a request; UnsupportedRequestError or InvalidIdError if one cannot be stored.

    MediaTypeError or BodyTooLargeError for data that is not within the limits of files.
    """
    if sum(count_parts(event.get("content")) for event in events) > MAX_PARTS:
        raise UnsupportedRequestError(f"events have more than {MAX_PARTS} parts together.")
    restored = tuple(_restored(number, event) for number, event in enumerate(events))
    entries = [entry_of(event)[1] for event in restored]  # checks ids as well
    parts = [part for event in restored if event.content for part in event.content.parts or ()]
    return RestoredEvents(
        restored,
        sum(entry.tokens for entry in entries if entry is not None),
        sum(checked_size(part, files) for part in parts),
    )


def _restored(number: int, data: Any) -> Event:
    """One event; as in ADK's server, it must not be one by which ADK asks or acts."""
    try:
        event = Event.model_validate_json(json_text(data))
    except ValidationError as error:
        raise UnsupportedRequestError(f"events.{number}.{problems_of(error)}") from None
    names = {call.name for call in event.get_function_calls()}
    names |= {response.name for response in event.get_function_responses()}
    claims = {
        "long-running tool IDs": event.long_running_tool_ids,
        "event actions": event.actions != EventActions(),
        "ADK protocol function calls": names & QUESTIONS,
    }
    for claim, is_made in claims.items():
        if is_made:
            raise UnsupportedRequestError(
                f"Session initialization event {number} cannot include {claim}."
            )
    event.custom_metadata = public_metadata(event.custom_metadata) or None
    return as_restored(event)
