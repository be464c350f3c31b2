"""What ADK's API server removes from events, and marks in them, at its boundary."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any, cast

from google.adk.auth.auth_credential import _redact_credential_secrets
from google.adk.events._internal_metadata import mark_restored, public_event
from google.adk.events.event import Event


def dumped(event: Event) -> dict[str, Any]:
    """An event as ADK's API server sends it: without internal metadata and secrets."""
    fields = public_event(event).model_dump(
        mode="json", by_alias=True, exclude_none=True, warnings=False
    )
    return cast("dict[str, Any]", _redact_credential_secrets(fields))


def redacted(value: Any) -> Any:
    """JSON without the secrets of credentials."""
    return _redact_credential_secrets(value)


def as_restored(event: Event) -> Event:
    """Mark an event that a client supplied, so that ADK does not trust it as its own."""
    return mark_restored(event)
