"""Whether this process measures itself. Without metrics, a measurement costs one check.

Instrumented code reads `metrics.recorder`, and calls it unless it is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lango.core.extras import install, is_installed
from lango.errors import ConfigError

if TYPE_CHECKING:
    from lango.telemetry.metrics.recorder import Recorder


class Switch:
    """The recorder of the process; None while metrics are off."""

    __slots__ = ("recorder",)

    def __init__(self) -> None:
        self.recorder: Recorder | None = None

    def turn_on(self) -> Recorder:
        """Measure from now on (idempotent); ConfigError if prometheus_client is not installed."""
        if self.recorder is None:
            require_metrics()
            from lango.telemetry.metrics.recorder import Recorder

            self.recorder = Recorder()
        return self.recorder

    def turn_off(self) -> None:
        """Stop measuring, and forget what was measured."""
        self.recorder = None


def require_metrics() -> None:
    """ConfigError if the packages for metrics are not installed."""
    if not is_installed("metrics"):
        raise ConfigError(f"`metrics.enabled` needs one more package: {install('metrics')}")


metrics: Final = Switch()
"""The metrics of this process."""
