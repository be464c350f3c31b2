"""The JSON log of real processes: each line is JSON, has its ids, and holds no secret."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import PATIENCE, Running
from tests.cli.slow_shop import Shop

CANARY = "canary-7c21d0a9e4"
FAILING = f"""
import asyncio
import lango
from lango.adk.apps.build import llm_agent
from lango.providers.scripted import ScriptedProvider

@lango.tool
async def charge(card: str) -> str:
    "Charge a card."
    raise RuntimeError("api_key=sk-{CANARY} was refused")

def make():
    return llm_agent("shop", lango.ModelAdapter(ScriptedProvider(), "demo"), tools=[charge])
"""
SECRETS = {"SHOP_API_KEY": f"env-{CANARY}"}


@pytest.fixture
def shop(tmp_path: Path, sqlite_url: str, tenant: str) -> Shop:
    made = Shop(tmp_path, sqlite_url, tenant)
    made.write(
        server="{access_log: true, host: 127.0.0.1, port: 0}",
        metrics="{enabled: true, port: 0}",
        log_format="json",
    )
    (tmp_path / "shop.py").write_text(FAILING)
    return made


def lines_of(process: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.err.splitlines()]


def test_a_server_that_logs_json(shop: Shop) -> None:
    with Running(shop.folder, "serve", "--insecure-no-auth", environment=SECRETS) as server:
        server.wait_for("The console is at")
        address, metrics = re.findall(r"http://127\.0\.0\.1:\d+", server.err)[:2]
        key = {"Authorization": f"Bearer lango_key_{CANARY}", "X-Request-ID": "gateway-1"}
        with httpx.Client(base_url=address, headers=key, timeout=PATIENCE) as client:
            session = client.post("/v1/sessions", json={"app": shop.app}).json()["id"]
            message = f'call charge {{"card": "{CANARY}"}}'
            path = f"/v1/sessions/{session}/turns?token={CANARY}"
            turn = client.post(path, json={"message": message}).json()["id"]
            server.wait_for(f"Turn {turn} of {shop.app}, session")
            server.wait_for("completed after")
            scraped = httpx.get(f"{metrics}/metrics", timeout=PATIENCE).text
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    lines = lines_of(server)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    accessed = [line for line in lines if line["logger"] == "lango.access"]
    assert {
        "request": "gateway-1",
        "method": "POST",
        "path": "/v1/sessions",
        "status": 201,
    }.items() <= accessed[0].items()
    [failed] = [line for line in lines if line["level"] == "ERROR"]
    assert (failed["turn"], failed["tool"]) == (turn, "charge")
    assert failed["error_id"].startswith("err_")
    assert "RuntimeError" in failed["exception"]
    ends = [line for line in lines if line.get("state")]
    assert [(line["turn"], line["app"], line["state"]) for line in ends] == [
        (turn, shop.app, "completed")
    ]
    assert 'lango_tool_calls_total{outcome="error",tool="charge"} 1.0' in scraped
    assert "lango_model_requests_total{" in scraped
    for text in (server.err, server.out, scraped):
        assert CANARY not in text


@pytest.mark.parametrize("chosen", ["json", "text"])
def test_the_option_comes_before_the_setting(shop: Shop, chosen: str) -> None:
    command = ("worker", "--probe-port", "0", "--log-format", chosen)
    with Running(shop.folder, *command) as worker:
        worker.wait_for("Probes and metrics are answered on port")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end() == 0
    is_json = [line.startswith("{") for line in worker.err.splitlines()]
    assert set(is_json) == {chosen == "json"}
    if chosen == "json":
        assert [line["logger"] for line in lines_of(worker)][-1] == "lango.process"


def test_the_web_ui_of_adk_logs_json(shop: Shop) -> None:
    with Running(shop.folder, "dev", "--port", "0", "--log-format", "json") as server:
        server.wait_for("ADK's web UI for")
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    assert lines_of(server)[-1]["message"] == "Stopped."
