"""Canary of lango/adk/compat/public_events.py."""

from google.adk.events.event import Event
from google.genai import types

from tests.support.canary import Canary

CANARY = Canary.of_adk("public_events.py", "events as ADK's API server sends them")
METADATA = "events._internal_metadata"


def test_adk_s_server_uses_these_functions() -> None:
    CANARY.takes(CANARY.part(METADATA, "public_event"), "event")
    CANARY.takes(CANARY.part(METADATA, "mark_restored"), "event")
    CANARY.takes(CANARY.part("auth.auth_credential", "_redact_credential_secrets"), "value")
    server = CANARY.part("cli.api_server", "ApiServer")
    CANARY.contains(server, "public_event(", "mark_restored(", "_redact_credential_secrets(")


def test_what_they_remove_and_mark() -> None:
    from lango.adk.compat.public_events import as_restored, dumped, redacted

    event = as_restored(Event(author="a", content=types.ModelContent("Hi")))
    CANARY.check(bool(event.custom_metadata), METADATA, "a mark on restored events")
    CANARY.check("customMetadata" not in dumped(event), METADATA, "internal metadata hidden")
    secret = {"authType": "oauth2", "oauth2": {"clientSecret": "hush"}}
    CANARY.check("hush" not in str(redacted(secret)), "auth.auth_credential", "secrets hidden")
