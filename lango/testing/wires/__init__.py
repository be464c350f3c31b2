"""Scripted model servers on loopback, one for each provider API, for the vendors' own SDKs."""

from lango.testing.wires.script import Broken, Call, Refusal, Reply, ScriptedAnswer
from lango.testing.wires.server import WIRES, Received, WireServer, provider_of

__all__ = [
    "WIRES",
    "Broken",
    "Call",
    "Received",
    "Refusal",
    "Reply",
    "ScriptedAnswer",
    "WireServer",
    "provider_of",
]
