"""`/metrics`: what this process has measured, and what the database says about all of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Response

from lango.config.metrics import MetricsSettings
from lango.server.backend import EndpointServices, services_of
from lango.server.listening import METRICS_OPTIONS, listen, web_address
from lango.server.process import plain_server
from lango.store.insight.fleet import read_fleet
from lango.telemetry.metrics.switch import metrics

if TYPE_CHECKING:
    from lango.telemetry.metrics.recorder import Recorder

logger = logging.getLogger(__name__)

PATH: Final = "/metrics"
QUERY_EVERY: Final = 5.0
"""Seconds for which the result of a query is reused, however often Prometheus asks."""
_QUERY_SHARE: Final = 20  # a query that takes a second is made every twenty
LONGEST_REUSE: Final = 30.0
"""A query that is slow, or that failed, is made again after this many seconds: alerts need it."""
_QUERY_TIMEOUT: Final = 5.0
_LAG_EVERY: Final = 0.5


class Exporter:
    """Renders the metrics of a process. Scrapes share one query to the database."""

    def __init__(self, recorder: Recorder, services: EndpointServices) -> None:
        self.recorder = recorder
        self._services = services
        self._lock = asyncio.Lock()
        self._query_after = -inf

    async def render(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        async with self._lock:
            if time.monotonic() >= self._query_after:
                await self._query()
        self._show_process()
        return self.recorder.render()

    async def _query(self) -> None:
        began, fleet = time.monotonic(), None
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT):
                fleet = await read_fleet(self._services.store.database)
        except Exception as error:  # noqa: BLE001 - the other metrics are readable without it
            logger.info("The database did not answer a query for metrics: %s", type(error).__name__)
        self.recorder.show_fleet(fleet)
        took = time.monotonic() - began
        reuse = min(max(QUERY_EVERY, _QUERY_SHARE * took), LONGEST_REUSE)
        self._query_after = time.monotonic() + reuse

    def _show_process(self) -> None:
        recorder, services = self.recorder, self._services
        recorder.open_streams.set(len(services.streams.slots))
        for pool, (in_use, limit) in services.store.database.use.items():
            recorder.show_connections(pool, in_use, limit)
        worker = services.health.worker
        if worker is not None:
            recorder.show_worker(
                running=worker.running,
                concurrency=worker.options.concurrency,
                abandoned=worker.left_behind,
                heartbeat_age=worker.heartbeat_age,
            )


def add_metrics(app: FastAPI, exporter: Exporter) -> None:
    """Answer `/metrics` in an application that clients do not reach."""

    async def get_metrics() -> Response:
        return Response(await exporter.render(), media_type=exporter.recorder.content_type)

    app.add_api_route(PATH, get_metrics, methods=["GET"], include_in_schema=False)


@asynccontextmanager
async def measuring(app: FastAPI) -> AsyncGenerator[Exporter | None]:
    """An exporter for a server's application; None if metrics are off.

    Inside, the event loop's delays are measured.
    """
    recorder = metrics.recorder
    if recorder is None:
        yield None
        return
    lag = asyncio.create_task(_measure_lag(recorder))
    try:
        yield Exporter(recorder, services_of(app))
    finally:
        lag.cancel()


@asynccontextmanager
async def metrics_beside_probes(app: FastAPI) -> AsyncGenerator[bool]:
    """Answer `/metrics` in the application of a worker's probes; yields whether metrics are on."""
    async with measuring(app) as exporter:
        if exporter is not None:
            add_metrics(app, exporter)
        yield exporter is not None


@asynccontextmanager
async def metrics_port(app: FastAPI, settings: MetricsSettings) -> AsyncGenerator[str | None]:
    """Answer `/metrics` on a port of its own; yields its URL, or None if metrics are off."""
    async with measuring(app) as exporter:
        if exporter is None:
            yield None
            return
        metrics_app = FastAPI(openapi_url=None)
        add_metrics(metrics_app, exporter)
        with listen(settings.host, settings.port, METRICS_OPTIONS) as listening:
            server = plain_server(metrics_app)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield f"{web_address(*listening.getsockname()[:2])}{PATH}"
            finally:
                server.should_exit = True
                await serving


async def _measure_lag(recorder: Recorder) -> None:
    while True:
        due = time.monotonic() + _LAG_EVERY
        await asyncio.sleep(_LAG_EVERY)
        recorder.loop_lagged(max(time.monotonic() - due, 0.0))
