"""`/metrics`: what it answers, on which port, and what a scrape costs the database."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest

from lango.config.metrics import MetricsSettings
from lango.core.fleet import FleetState
from lango.server import metrics
from lango.server.backend import services_of
from lango.server.metrics import Exporter, measuring, metrics_beside_probes, metrics_port
from lango.server.routes.probes import create_probes
from lango.telemetry.metrics.recorder import Recorder
from tests.server.served_apps import PATIENCE, ProcessBackend, ServedApp, client_of, live
from tests.support.scrapes import Scrape, recording

OWN_PORT = MetricsSettings(enabled=True, port=0)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


@pytest.mark.usefixtures("recorder")
async def test_a_server_with_a_worker(served: ServedApp) -> None:
    worker = served.worker()
    async with metrics_port(served.app, OWN_PORT) as url, live(served, worker) as server:
        assert url is not None
        session = await served.session()
        turn = await served.turn(session, "hello")
        await served.turns().wait(turn)
        async with server.client() as client:
            path = f"/v1/sessions/{session}"
            assert (await client.get(path)).status_code == 200
            assert (await client.get("/metrics")).status_code == 404
        async with httpx.AsyncClient(timeout=PATIENCE) as outside:
            answer = await outside.get(url)
    read = Scrape(answer.text)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    template = {"route": "/v1/sessions/{session_id}", "method": "GET"}
    assert read.value("lango_http_requests_total", **template, status="200") == 1
    assert read.value("lango_http_response_start_seconds_count", **template) == 1
    missing = {"route": "other", "method": "GET", "status": "404"}
    assert read.value("lango_http_requests_total", **missing) == 1
    assert read.value("lango_turns_ended_total", app=served.agent, state="completed") == 1
    assert read.value("lango_worker_concurrency") == 100
    assert (read.value("lango_workers", state="alive") or 0) >= 1
    assert (read.value("lango_database_connections_limit", pool="other") or 0) > 0
    for secret in (session, turn, served.tenant, "key_ann"):
        assert secret not in read.text


async def test_metrics_that_are_off_have_no_port(sqlite_served: ServedApp) -> None:
    async with metrics_port(sqlite_served.app, OWN_PORT) as url:
        assert url is None
    async with live(sqlite_served) as server, server.client() as client:
        assert (await client.get("/metrics")).status_code == 404


@pytest.mark.usefixtures("recorder")
async def test_a_worker_answers_beside_its_probes(sqlite_served: ServedApp) -> None:
    app = create_probes(ProcessBackend(sqlite_served.process))
    client = client_of(httpx.ASGITransport(app), "http://localhost", None)
    async with metrics_beside_probes(app) as measured, client:
        answer = await client.get("/metrics")
    assert (measured, answer.status_code) == (True, 200)
    assert Scrape(answer.text).value("lango_database_up") == 1


async def test_the_probes_of_a_worker_without_metrics(sqlite_served: ServedApp) -> None:
    app = create_probes(ProcessBackend(sqlite_served.process))
    client = client_of(httpx.ASGITransport(app), "http://localhost", None)
    async with metrics_beside_probes(app) as measured, client:
        assert (await client.get("/metrics")).status_code == 404
    assert not measured


async def test_scrapes_share_one_query(
    sqlite_served: ServedApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = 0

    async def counted(_: object) -> FleetState:
        nonlocal queries
        queries += 1
        await asyncio.sleep(0)
        return FleetState(alive=queries)

    monkeypatch.setattr(metrics, "read_fleet", counted)
    monkeypatch.setattr(metrics, "QUERY_EVERY", 3600.0)
    exporter = Exporter(recorder, services_of(sqlite_served.app))
    answers = await asyncio.gather(*(exporter.render() for _ in range(50)))
    assert queries == 1
    assert Scrape(answers[-1].decode()).value("lango_workers", state="alive") == 1
    monkeypatch.setattr(metrics, "QUERY_EVERY", 0.0)
    fresh = Exporter(recorder, services_of(sqlite_served.app))
    await fresh.render()
    assert queries == 2


async def test_after_a_slow_query_that_fails_the_next_is_not_far(
    sqlite_served: ServedApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 0.0, 5.0, 5.0, 34.9, 35.0, 35.0, 35.1, 35.1])
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: next(times)))
    answers = iter([TimeoutError(), FleetState(alive=1)])

    async def answer(_: object) -> FleetState:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(metrics, "read_fleet", answer)
    exporter = Exporter(recorder, services_of(sqlite_served.app))
    up = [Scrape((await exporter.render()).decode()).value("lango_database_up") for _ in range(3)]
    assert up == [0, 0, 1]


async def test_a_database_that_is_away_hides_no_other_metric(
    sqlite_served: ServedApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> FleetState:
        raise OSError("no route to postgresql://ann:secret@host")

    exporter = Exporter(recorder, services_of(sqlite_served.app))
    assert Scrape((await exporter.render()).decode()).value("lango_database_up") == 1
    monkeypatch.setattr(metrics, "read_fleet", fail)
    again = Exporter(recorder, services_of(sqlite_served.app))
    text = (await again.render()).decode()
    assert Scrape(text).value("lango_database_up") == 0
    assert Scrape(text).value("lango_http_open_streams") == 0
    assert "secret" not in text


async def test_open_streams(served: ServedApp, recorder: Recorder) -> None:
    async with live(served, served.worker()) as server, server.client() as client:
        turn = await served.turn(await served.session(), 'call hold {"name": "go"}')
        exporter = Exporter(recorder, services_of(served.app))
        async with client.stream("GET", f"/v1/turns/{turn}/events") as stream:
            assert stream.status_code == 200
            read = Scrape((await exporter.render()).decode())
            assert read.value("lango_http_open_streams") == 1
            (served.process.workspace.folder / "go").touch()
            async for _ in stream.aiter_bytes():
                pass


async def test_the_delays_of_the_event_loop(
    sqlite_served: ServedApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_LAG_EVERY", 0.001)
    async with measuring(sqlite_served.app), asyncio.timeout(PATIENCE):
        while not lags(recorder):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.001)


def lags(recorder: Recorder) -> float:
    read = Scrape(recorder.render().decode())
    return read.value("lango_event_loop_lag_seconds_count") or 0.0
