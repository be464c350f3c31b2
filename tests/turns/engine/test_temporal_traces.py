"""Traces of turns that Temporal dispatches."""

from __future__ import annotations

import asyncio
from pathlib import Path

from temporalio.client import ActivityExecutionStatus, Client

from faults.carriers.temporal_server import TemporalServer
from tests.support.otlp import receiver
from tests.telemetry.tracing.project import Project
from tests.telemetry.tracing.takeover import check_a_takeover


async def test_a_killed_worker_and_its_successor_are_in_one_trace(
    tmp_path: Path, postgres_url: str, tenant: str, temporal: TemporalServer
) -> None:
    with receiver() as traces:
        app = f"shop_{tenant[-8:]}"
        project = Project(tmp_path, postgres_url, traces.url, app, engine=temporal.url)
        turn = await asyncio.to_thread(check_a_takeover, project, traces)
    client = await Client.connect(temporal.address)
    described = await client.get_activity_handle(turn).describe()
    assert described.status == ActivityExecutionStatus.COMPLETED
