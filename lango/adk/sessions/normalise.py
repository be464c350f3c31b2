"""All changes that the store may make to an event.

`normalise` is the whole list, in order, one pure function each; a reload returns an event equal to
`normalise(event)`. It is idempotent, and changes nothing but the role of a function response in an
event that a real Runner made of ordinary text. docs/reference/events.md explains each change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, Final, TypeVar, get_args

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import BaseModel

from lango.adk.sessions.fast_model import fast_model
from lango.core.ids import check_id
from lango.core.messages.call_ids import with_fallback_ids
from lango.core.values import JsonObject, json_text, storable_json, storable_text

M = TypeVar("M", bound=BaseModel)

RESPONSE_ROLE: Final = "function"
"""The role of stored function responses."""
REQUEST_ROLE: Final = "user"
"""Their role in requests."""
MAX_OUTPUT: Final = 256 * 1024
"""Bytes of JSON above which a tool's output goes to an artifact."""
OUTPUT_HEAD: Final = 2_000
"""Characters of such an output that stay in the event."""

# Their validators do not check numbers.
_RULES_ASIDE: Final = (Event, EventActions)

# ADK declares these as Any because of its imports, but returns them as models.
_MODELS_BEHIND_ANY: Final = frozenset({"requested_auth_configs"})


def normalise(event: Event) -> Event:
    """The event as a reload returns it; the same object if nothing changes."""
    return with_response_role(normalise_payload(event))


def normalise_payload(event: Event) -> Event:
    """All of `normalise` but the role of function responses, which ADK accepts either way."""
    return with_outputs_moved(before_outputs_move(event))


def before_outputs_move(event: Event) -> Event:
    """The event with its large outputs still in it."""
    check_ids(event)
    return with_call_ids(without_temp_state(storable_event(event)))


def check_ids(event: Event) -> None:
    """Refuse ids that cannot be stored unchanged; the event's own id must not be empty."""
    check_id("event id", event.id)
    if event.invocation_id:
        check_id("invocation id", event.invocation_id)
    for call_id, _ in _calls(event):
        if call_id:
            check_id("call id", call_id)


def storable_event(event: Event) -> Event:
    """Unstorable text, numbers and over-deep JSON replaced as `lango.core.values` says."""
    return _storable_model(event)


def storable_actions(actions: EventActions) -> EventActions:
    """Actions as `storable_event` leaves them in an event."""
    return _storable_model(actions)


def without_temp_state(event: Event) -> Event:
    """Remove `temp:` state, which lives only in the session object."""
    delta = event.actions.state_delta
    if not any(key.startswith("temp:") for key in delta):
        return event
    delta_to_store = {key: value for key, value in delta.items() if not key.startswith("temp:")}
    return _updated(event, actions=_updated(event.actions, state_delta=delta_to_store))


def with_call_ids(event: Event) -> Event:
    """Give calls without an id `call_<name>`, and `call_<name>_2` to a second of that name."""
    calls = _calls(event)
    if all(call_id for call_id, _ in calls):
        return event
    ids = iter(with_fallback_ids(calls))

    def with_id(part: types.Part) -> types.Part:
        if part.function_call is not None:
            part = _updated(part, function_call=_updated(part.function_call, id=next(ids)))
        if part.function_response is not None:
            part = _updated(part, function_response=_updated(part.function_response, id=next(ids)))
        return part

    return _with_parts(event, with_id)


def with_outputs_moved(event: Event) -> Event:
    """Replace a tool output over MAX_OUTPUT by its head and the name of its artifact."""
    return moving_outputs(event, large_outputs(event))


def moving_outputs(event: Event, large: dict[int, str]) -> Event:
    """The event without the outputs that `large_outputs` found in it."""
    if not large:
        return event
    numbers = count()

    def moved(part: types.Part) -> types.Part:
        response = part.function_response
        if response is None or (text := large.get(next(numbers))) is None:
            return part
        marker = {
            "truncated": True,
            "artifact": output_name(event, response),
            "bytes": len(text.encode()),
            "head": text[:OUTPUT_HEAD],
        }
        return _updated(part, function_response=_updated(response, response=marker))

    return _with_parts(event, moved)


def large_outputs(event: Event) -> dict[int, str]:
    """The JSON of the outputs that are too large for a row, by the number of their response."""
    outputs: dict[int, str] = {}
    for number, response in enumerate(event.get_function_responses()):
        if response.response and _may_be_large(response.response):
            text = json_text(response.response)
            if len(text) > MAX_OUTPUT or len(text.encode()) > MAX_OUTPUT:
                outputs[number] = text
    return outputs


def output_name(event: Event, response: types.FunctionResponse) -> str:
    """The artifact for a large output: one per event and call, so that a retry saves it once."""
    return f"tool-output/{event.id}/{response.id}.json"


def with_response_role(event: Event) -> Event:
    """Give content with function responses the role "function"."""
    content = event.content
    if content is None or content.role == RESPONSE_ROLE or not event.get_function_responses():
        return event
    return _updated(event, content=_updated(content, role=RESPONSE_ROLE))


def with_adk_roles(contents: list[types.Content]) -> list[types.Content]:
    """Contents as ADK's models expect them: with the role that ADK gives function responses.

    Gemini refuses other roles than user and model; and after one, ADK asks the model to continue.
    """
    return [
        _updated(content, role=REQUEST_ROLE) if content.role == RESPONSE_ROLE else content
        for content in contents
    ]


def _calls(event: Event) -> list[tuple[str | None, str | None]]:
    """(id, name) of every call and response, in the order of the parts."""
    calls: list[tuple[str | None, str | None]] = []
    for part in (event.content and event.content.parts) or ():
        if part.function_call is not None:
            calls.append((part.function_call.id, part.function_call.name))
        if part.function_response is not None:
            calls.append((part.function_response.id, part.function_response.name))
    return calls


def _may_be_large(value: Any, room: int = MAX_OUTPUT // 8) -> bool:
    """Whether a value has long texts or many items, so that dumping it is worth the time."""
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        room -= 4 if not isinstance(item, str) else len(item)
        if room < 0:
            return True
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, list):
            todo += item
    return False


def _updated(model: M, **values: Any) -> M:
    return model.model_copy(update=values)


def _with_parts(event: Event, change: Callable[[types.Part], types.Part]) -> Event:
    content = event.content
    if content is None or content.parts is None:
        return event
    parts = [change(part) for part in content.parts]
    return _updated(event, content=_updated(content, parts=parts))


@cache
def _any_fields(model: type[BaseModel]) -> frozenset[str]:
    """Fields that may hold anything, which a reload returns as plain JSON."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if name not in _MODELS_BEHIND_ANY and _mentions_any(field.annotation)
    )


def _mentions_any(annotation: Any) -> bool:
    return (
        annotation is Any or annotation is object or any(map(_mentions_any, get_args(annotation)))
    )


def _storable_model(model: M) -> M:
    """The model itself if all its values are storable, else a corrected copy."""
    anything = _any_fields(type(model))
    changes: dict[str, Any] = {}
    for name, value in model.__dict__.items():
        if value is None:
            continue
        if name in anything:
            new = storable_json(value)
        elif value and value is not True:
            new = _storable_field(model, name, value)
        else:  # empty, zero or a bool: nothing to correct
            continue
        if new is not value:
            changes[name] = new
    return _updated(model, **changes) if changes else model


def _storable_field(model: BaseModel, name: str, value: Any) -> Any:
    """A declared value: text and numbers are corrected; bytes, enums and times stay."""
    kind = value.__class__
    if kind is str:
        return storable_text(value)
    if kind is float:
        if math.isfinite(value):
            return value
        return None if _may_be_absent(model, name) else 0.0
    if isinstance(value, BaseModel):
        return _storable_model(value)
    if kind is list or kind is set or kind is dict:
        return _storable_items(model, name, value)
    return value


def _may_be_absent(model: BaseModel, name: str) -> bool:
    """Whether a number may become None; a class with its own validators may need it."""
    by_default = type(model).model_fields[name].default is None
    return by_default and (isinstance(model, _RULES_ASIDE) or fast_model(type(model)).is_plain)


def _storable_items(model: BaseModel, name: str, value: Any) -> Any:
    if isinstance(value, dict):
        items: JsonObject = value  # pyright: ignore[reportUnknownVariableType]
        new = {
            storable_text(key): _storable_field(model, name, item) for key, item in items.items()
        }
        is_unchanged = all(key in new and new[key] is item for key, item in items.items())
        return value if is_unchanged else new  # pyright: ignore[reportUnknownVariableType]
    fresh = [_storable_field(model, name, item) for item in value]
    if all(new is old for new, old in zip(fresh, value, strict=True)):
        return value
    return set(fresh) if isinstance(value, set) else fresh
