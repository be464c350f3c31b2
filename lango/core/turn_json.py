"""Turn events from the JSON that a log or a wire has of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, cast

from lango import errors
from lango.core.streams import Usage
from lango.core.turns import KINDS, Approval, ApprovalRequired, Failed, TurnEvent
from lango.core.values import JsonObject
from lango.errors import AgentNotFoundError, LangoError, TurnError

_NOT_FOUND: Final = str(AgentNotFoundError(""))


def event_of(kind: str, data: JsonObject) -> TurnEvent | None:
    """The event that `data()` was taken of; None if it is of a kind that no agent tells."""
    made = KINDS.get(kind)
    if made is None:
        return None
    if made is ApprovalRequired:
        return ApprovalRequired(_approval(data))
    known = (field.name for field in fields(made) if field.name in data)
    given = {name: _value(name, data[name]) for name in known}
    if made is Failed:
        given["error_id"] = str(data["error"].get("error_id", ""))
    return cast(Any, made)(**given)


def _value(name: str, value: Any) -> Any:
    match name:
        case "error" if isinstance(value, dict):
            return error_of(cast(JsonObject, value))
        case "usage":
            return usage_of(value)
        case "calls":
            return tuple(value)
        case _:
            return value


def usage_of(data: JsonObject) -> Usage:
    """The usage that JSON tells of; what a newer lango counts is left out."""
    known = {field.name for field in fields(Usage)}
    return Usage(**{key: count for key, count in data.items() if key in known})


def _approval(data: JsonObject) -> Approval:
    told = {name: data[name] for name in ("name", "arguments", "hint", "agent")}
    return Approval(id=data["approval"], call_id=data["call"], **told)


def error_of(data: JsonObject) -> LangoError:
    """The error that `error_data` was taken of: its class and its words, and nothing else of it.

    What was no error of ours is a TurnError.
    """
    kind = getattr(errors, str(data["type"]), None)
    message = str(data["message"])
    if kind is AgentNotFoundError:
        return AgentNotFoundError(message.removeprefix(_NOT_FOUND))
    if isinstance(kind, type) and issubclass(kind, LangoError):
        return kind(message)
    return TurnError(message)
