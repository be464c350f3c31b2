"""The public test kit: a scripted model, strategies for ADK events, conformance suites.

`kill_sweep` kills your agent's process within its turns, and reports what that changed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lango.providers.scripted import Fault, Reply, ScriptedProvider

if TYPE_CHECKING:
    from lango.testing.kill_trials import effect
    from lango.testing.kills import SweepReport, kill_sweep

__all__ = ["Fault", "Reply", "ScriptedProvider", "SweepReport", "effect", "kill_sweep"]

_HOMES = {
    "SweepReport": "lango.testing.kills",
    "effect": "lango.testing.kill_trials",
    "kill_sweep": "lango.testing.kills",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: a scripted model needs neither ADK nor a database."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
