"""Metrics as Prometheus reads them."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from lango.telemetry.metrics.recorder import Recorder
from lango.telemetry.metrics.switch import metrics
from tests.conftest import CI

PROMTOOL: Final = shutil.which("promtool")
PROMETHEUS: Final = shutil.which("prometheus")
HAS_PROMETHEUS: Final = CI or PROMTOOL is not None
OF_PROCESS: Final = ("process_", "python_")
"""Names of metrics that the Prometheus client has for any process."""


@contextmanager
def recording() -> Generator[Recorder]:
    """Metrics are on inside, and of this block alone."""
    metrics.turn_off()
    try:
        yield metrics.turn_on()
    finally:
        metrics.turn_off()


class Scrape:
    """One answer of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {
            family.name: family
            for family in text_string_to_metric_families(text)
            if not family.name.startswith(OF_PROCESS)
        }
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The value of one series; None if there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The values of a metric by their labels."""
        return {labels: value for (known, labels), value in self.samples.items() if known == name}

    @property
    def names(self) -> set[str]:
        """The names of all series."""
        return {name for name, _ in self.samples}


def scrape(recorder: Recorder) -> Scrape:
    """What a recorder would answer now."""
    return Scrape(recorder.render().decode())
