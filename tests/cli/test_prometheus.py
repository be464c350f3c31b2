"""A real Prometheus scrapes a server and a worker, loads the rules, and answers the dashboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import httpx
import pytest

from scripts.dashboard import dashboard
from tests.cli.processes import PATIENCE, Running
from tests.cli.slow_shop import Shop
from tests.support.prometheus import Prometheus, prometheus, until
from tests.support.scrapes import HAS_PROMETHEUS

pytestmark = pytest.mark.skipif(not HAS_PROMETHEUS, reason="Prometheus is not installed")
# What needs a takeover, a failure or a price is absent after turns that go well.
RARE: Final = re.compile(r"takeover|failed|failures|errors|cost_|oldest_seconds")


@pytest.fixture
def shop(tmp_path: Path, postgres_url: str, tenant: str) -> Shop:
    made = Shop(tmp_path, postgres_url, tenant)
    made.write(
        server="{port: 0}",
        metrics="{enabled: true, port: 0}",
    )
    return made


def test_it_scrapes_a_server_and_a_worker(shop: Shop) -> None:
    serve = ("serve", "--no-worker", "--insecure-no-auth")
    with (
        Running(shop.folder, *serve) as server,
        Running(shop.folder, "worker", "--probe-port", "0") as worker,
    ):
        server.wait_for("The console is at")
        worker.wait_for("Probes and metrics are answered on port")
        address, of_server = re.findall(r"http://(127\.0\.0\.1:\d+)", server.err)[:2]
        of_worker = f"127.0.0.1:{re.findall(r'on port ([0-9]+)', worker.err)[0]}"
        with prometheus(shop.folder, [of_server, of_worker]) as asked:
            until(lambda: len(asked.ask("up == 1")) == 2)
            run_turns(f"http://{address}", shop.app)
            done = f'sum(lango_turns_ended_total{{app="{shop.app}",state="completed"}})'
            until(lambda: [found["value"][1] for found in asked.ask(done)] == ["3"])
            ended_by = f'lango_turns_ended_total{{app="{shop.app}"}}'
            assert asked.instances(ended_by) == {of_worker}
            by_server = 'lango_http_requests_total{method="POST"}'  # scraped at another moment
            until(lambda: asked.instances(by_server) == {of_server})
            check_dashboard(asked, shop)
            worker.kill()
            dead = f'ALERTS{{alertname="LangoProcessDown",instance="{of_worker}"}}'
            until(lambda: len(asked.ask(dead)) == 1)


def run_turns(address: str, app: str) -> None:
    """Run three turns, and start one whose tool waits."""
    stream = {"Accept": "text/event-stream"}
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for number in range(4):
            session = client.post("/v1/sessions", json={"app": app}).json()["id"]
            path = f"/v1/sessions/{session}/turns"
            if not number:
                client.post(path, json={"message": "call hold {}"}).raise_for_status()
                continue
            said = client.post(path, json={"message": "hello"}, headers=stream)
            assert "event: completed" in said.text


def check_dashboard(asked: Prometheus, shop: Shop) -> None:
    """Each query is one that Prometheus takes; those of what has happened have data."""
    queries = [
        target["expr"].replace("$__rate_interval", "1m")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    for query in queries:
        asked.ask(query)
    until(lambda: bool(asked.ask("lango_turns_open")))  # of the turn that waits
    (shop.folder / "go").touch()
    missing = {query for query in queries if not RARE.search(query)}

    def all_have_data() -> bool:
        for query in list(missing):
            if asked.ask(query):
                missing.discard(query)
        return not missing

    until(all_have_data, lambda: f"no data: {missing}")
