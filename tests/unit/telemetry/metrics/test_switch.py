"""Metrics that are off: no vendor, no cost."""

import subprocess
import sys

import pytest

from lango.core import extras
from lango.errors import ConfigError
from lango.telemetry.metrics.switch import Switch

EVERYTHING = """
import sys
import lango.app, lango.server.app, lango.server.metrics, lango.cli, lango.turns.worker
print("prometheus_client" in sys.modules)
"""


def test_without_metrics_the_vendor_is_not_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING], capture_output=True, check=True, text=True
    )
    assert done.stdout.split() == ["False"]


def test_they_are_turned_on_once() -> None:
    switch = Switch()
    assert switch.recorder is None
    assert switch.turn_on() is switch.turn_on() is switch.recorder
    switch.turn_off()
    assert switch.recorder is None


def test_a_missing_package_is_an_error_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(package: str) -> bool | None:
        return None if package == "prometheus_client" else True

    monkeypatch.setattr(extras, "find_spec", found)
    with pytest.raises(ConfigError, match=r"pip install \"lango-adk\[metrics\]\""):
        Switch().turn_on()
