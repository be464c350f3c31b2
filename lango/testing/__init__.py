"""The public test kit: a scripted model, strategies for ADK events, suites any store must pass.

`kill_sweep` kills an agent of yours in the middle of its turns, and says what that changed.
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
    """A name on its first use: a scripted model needs neither ADK nor a database."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
