"""When two services hold the same session: ids by order of appearance, without the clock."""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

from google.adk.events._rewind_events import (
    _apply_rewinds,  # pyright: ignore[reportPrivateUsage]  # which events ADK counts as undone
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.adk.events.event import Event
    from google.genai import types

    from tests.adk.runner.scripted import Request

Plain = dict[str, Any]
Names = dict[str, str]
"""What each made-up id is called: its number in the order of appearance."""

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MADE_UP = re.compile(f"(?:e-|adk-)?{_UUID}|call_[0-9a-f]{{32}}|call_[0-9a-f]{{12}}")

# An event with nothing beside these and a state delta is state-only.
_IDENTITY = {"id", "timestamp", "invocation_id", "author", "actions", "node_info", "branch"}


def state_only(event: Event) -> bool:
    """Whether the event carries a change of state and nothing else."""
    carried = event.model_dump(exclude_defaults=True, exclude_none=True, exclude=_IDENTITY)
    actions = event.actions.model_dump(exclude_defaults=True, exclude_none=True)
    return not carried and set(actions) <= {"state_delta"}


def visible(events: Sequence[Event]) -> list[Event]:
    """The events of the conversation: not those undone, not those of state alone."""
    return [event for event in _apply_rewinds(list(events)) if not state_only(event)]


def plain(events: Sequence[Event], names: Names | None = None) -> list[Plain]:
    """Events that are equal exactly if they say the same; `names` learns their ids."""
    names = {} if names is None else names
    ordered = _by_branch(events)
    indexes = {event.timestamp: index for index, event in reversed(list(enumerate(ordered)))}
    return [_plain(event, names, indexes) for event in ordered]


def _by_branch(events: Sequence[Event]) -> list[Event]:
    """Parallel branches come in any order: inside an invocation, one branch after another."""
    ordered: list[Event] = []
    for _, group in groupby(events, key=lambda event: event.invocation_id):
        ordered += sorted(group, key=lambda event: event.branch or "")
    return ordered


def _plain(event: Event, names: Names, indexes: dict[float, int]) -> Plain:
    dumped = event.model_dump(mode="json", exclude_none=True, exclude={"timestamp"})
    if event.partial:
        _drop_shared(dumped)
    if event.content:
        dumped["content"] = plain_content(event.content)
    if compaction := event.actions.compaction:
        dumped["actions"]["compaction"]["start_timestamp"] = indexes.get(compaction.start_timestamp)
        dumped["actions"]["compaction"]["end_timestamp"] = indexes.get(compaction.end_timestamp)
    renamed: Plain = json.loads(rename(json.dumps(dumped), names))
    if renamed.get("long_running_tool_ids"):
        renamed["long_running_tool_ids"].sort()
    return renamed


def _drop_shared(partial: Plain) -> None:
    """Drop what a partial event shares with the final one.

    ADK fills it in place when the final response has come. Whether the reader of the last partial
    still sees it empty depends on how long a plugin keeps that response.
    """
    partial["actions"].pop("state_delta", None)
    for shared in ("message_as_output", "output_for"):
        partial.get("node_info", {}).pop(shared, None)


def plain_content(content: types.Content) -> Plain:
    """The dumped content, its role derived from its parts, as ADK does."""
    dumped = content.model_dump(mode="json", exclude_none=True)
    if any(part.function_response for part in content.parts or []):
        dumped["role"] = "tool"
    return dumped


def plain_request(request: Request, names: Names) -> list[Plain]:
    """A model request in the same terms."""
    dumped = [plain_content(content) for content in request]
    renamed: list[Plain] = json.loads(rename(json.dumps(dumped), names))
    return renamed


def rename(text: str, names: Names) -> str:
    """`text` with a name in place of every made-up id."""
    return _MADE_UP.sub(lambda found: names.setdefault(found[0], f"<id {len(names)}>"), text)


def difference(ours: Sequence[object], theirs: Sequence[object]) -> str:
    """The first index where the two differ, with their difference there; or nothing."""
    for index, (one, other) in enumerate(zip_longest(ours, theirs)):
        if one != other:
            lines = unified_diff(_lines(one), _lines(other), "ours", "theirs", n=9)
            return f"{len(ours)} and {len(theirs)}, at {index}:\n" + "\n".join(lines)
    return ""


def _lines(item: object) -> list[str]:
    return json.dumps(item, indent=1, sort_keys=True, default=str).splitlines()
