"""One trace for a turn, from the request to the end, over two workers of which one is killed."""

from __future__ import annotations

from tests.support.otlp import Receiver
from tests.telemetry.tracing.project import Project
from tests.telemetry.tracing.takeover import check_a_takeover


def test_a_killed_worker_and_its_successor_are_in_one_trace(
    any_project: Project, traces: Receiver
) -> None:
    check_a_takeover(any_project, traces)
