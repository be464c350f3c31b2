"""Scripted model servers on loopback, one for each provider API, for the vendors' own SDKs."""

from lango.testing.wires.script import Answer, Broken, Call, Refusal, Reply
from lango.testing.wires.server import WIRES, Received, WireServer, provider_of

__all__ = [
    "WIRES",
    "Answer",
    "Broken",
    "Call",
    "Received",
    "Refusal",
    "Reply",
    "WireServer",
    "provider_of",
]
