"""Debian's Prometheus, which scrapes processes on loopback and evaluates rules."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from lango.server.listening import listen
from tests.support.scrapes import PROMETHEUS

RULES: Final = Path(__file__).resolve().parents[2] / "deploy/prometheus/lango.rules.yaml"
_PATIENCE: Final = 300.0
_MINUTES: Final = re.compile(r"(\[|offset |for: )(\d+)m\b")
_HOURS: Final = re.compile(r"(\[|offset |for: )(\d+)h\b")


def rules() -> str:
    """The rules of deploy/."""
    return RULES.read_text("utf-8")


def hurried(text: str) -> str:
    """Rules whose minutes are seconds: windows, offsets, and how long an alert must hold."""
    hours = _HOURS.sub(lambda found: f"{found[1]}{int(found[2]) * 60}m", text)
    return _MINUTES.sub(r"\1\2s", hours)


class Prometheus:
    """A client of a running Prometheus."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        answer = self._client.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", (query, answer)
        return answer["data"]["result"]

    def instances(self, query: str) -> set[str]:
        """The processes that the series of a query are of."""
        return {series["metric"]["instance"] for series in self.ask(query)}

    def is_firing(self, alert: str) -> bool:
        """Whether the alert fires for anything."""
        return bool(self.ask(f'ALERTS{{alertname="{alert}",alertstate="firing"}}'))


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], text: str | None = None
) -> Generator[Prometheus]:
    """Prometheus with the rules, which scrapes the targets and evaluates each second."""
    (folder / RULES.name).write_text(rules() if text is None else text)
    jobs = [{"job_name": "lango", "static_configs": [{"targets": list(targets)}]}]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": [RULES.name], "scrape_configs": jobs}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yaml'}"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE) as client:
            until(lambda: client.get("/-/ready").is_success)
            yield Prometheus(client)
    finally:
        process.kill()
        process.wait(_PATIENCE)


def until(holds: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    """Wait until something holds: Prometheus sends no event after a scrape."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        assert time.monotonic() < end, why()
        time.sleep(0.2)
