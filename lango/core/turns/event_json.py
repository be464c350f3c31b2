"""Turn events from their JSON in a log or an HTTP response."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, cast

from lango import errors
from lango.core.messages.streams import Usage
from lango.core.turns.events import (
    KINDS,
    Approval,
    ApprovalRequired,
    CredentialRequest,
    CredentialRequired,
    Failed,
    TurnEvent,
)
from lango.core.values import JsonObject
from lango.errors import AgentNotFoundError, LangoError, TurnError

_NOT_FOUND: Final = str(AgentNotFoundError(""))


def event_of(kind: str, data: JsonObject) -> TurnEvent | None:
    """The event whose `data()` this is; None for a kind that is not a TurnEvent."""
    event_class = KINDS.get(kind)
    if event_class is None:
        return None
    if event_class is ApprovalRequired:
        return ApprovalRequired(_approval(data))
    if event_class is CredentialRequired:
        return CredentialRequired(_credential(data))
    names = (field.name for field in fields(event_class) if field.name in data)
    values = {name: _value(name, data[name]) for name in names}
    if event_class is Failed:
        values["error_id"] = str(data["error"].get("error_id", ""))
    return cast(Any, event_class)(**values)


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
    """The usage in JSON; unknown fields, of a newer lango, are ignored."""
    names = {field.name for field in fields(Usage)}
    return Usage(**{key: count for key, count in data.items() if key in names})


def _approval(data: JsonObject) -> Approval:
    values = {name: data[name] for name in ("name", "arguments", "hint", "agent")}
    return Approval(id=data["approval"], call_id=data["call"], **values)


def _credential(data: JsonObject) -> CredentialRequest:
    values = {name: data[name] for name in ("name", "kind", "agent")}
    return CredentialRequest(
        id=data["credential"], call_id=data["call"], auth_uri=data.get("auth_uri"), **values
    )


def error_of(data: JsonObject) -> LangoError:
    """The error whose `error_data` this is, with only its class and message.

    A foreign exception becomes a TurnError.
    """
    kind = getattr(errors, str(data["type"]), None)
    message = str(data["message"])
    if kind is AgentNotFoundError:
        return AgentNotFoundError(message.removeprefix(_NOT_FOUND))
    if isinstance(kind, type) and issubclass(kind, LangoError):
        return kind(message)
    return TurnError(message)
