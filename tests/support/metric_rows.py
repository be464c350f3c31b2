"""The metrics of a real recorder as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lango.core.context.model_calls import ModelAttempt
from lango.core.fleet import FleetState, OpenTurnsOfApp
from lango.core.messages.streams import Usage
from lango.telemetry.metrics.recorder import Recorder
from tests.support.scrapes import OF_PROCESS, Scrape, scrape

OF_PARTS = ("_bucket", "_count", "_sum")
_NAME = re.compile(r"\b(?:lango|process)_[a-z0-9_]+\b")


def driven(recorder: Recorder) -> Scrape:
    """A scrape in which every metric has a series."""
    recorder.turn_started("a", 0.1)
    recorder.first_word("a", 0.1)
    recorder.attempt_began("a", "worker_lost", 6.0)
    recorder.turn_ended("a", "failed", "WorkerLostError", 1.0)
    attempt = ModelAttempt("p", "m", 1.0, 2.0, 1.5, "failed", "RateLimitedError", usage=Usage(1, 1))
    recorder.model_request(attempt, 0.1)
    recorder.tool_called("t", 0.1, failed=False, ran=True)
    recorder.request_answered("/", "GET", 200, 0.1)
    recorder.loop_lagged(0.1)
    recorder.show_connections("turns", 1, 10)
    group = OpenTurnsOfApp("a", "queued", 1, 1.0)
    recorder.show_fleet(FleetState((group,), (group,), 1, 1, 1.0, (group,)))
    return scrape(recorder)


def rows(read: Scrape) -> Iterator[str]:
    """A row for each metric of lango: its name, type, labels and help."""
    for family in read.families.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        named = ", ".join(f"`{label}`" for label in sorted(labels))
        yield f"| `{name}` | {family.type} | {named} | {family.documentation} |"


def names_in(text: str) -> set[str]:
    """The metrics that a query names."""
    return set(_NAME.findall(re.sub(r'"[^"]*"|lango:[a-z0-9_:]+', "", text)))


def series_of(recorder: Recorder) -> set[str]:
    """The names of all series that a process has, those of the Prometheus client as well."""
    text = recorder.render().decode()
    known = {line.split(" ")[0].partition("{")[0] for line in text.splitlines() if line[0] != "#"}
    assert any(name.startswith(OF_PROCESS) for name in known)
    return known
