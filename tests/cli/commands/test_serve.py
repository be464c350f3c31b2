"""`lango serve`: a process of its own, from its start to its drain."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import httpx
import pytest

from lango.server.auth.identity import LOCAL_USER
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore
from tests.cli.processes import Running
from tests.cli.running import run
from tests.cli.slow_shop import Shop
from tests.cli.terminal import PATIENCE


@pytest.fixture
def shop(tmp_path: Path, store_url: str, tenant: str) -> Shop:
    made = Shop(tmp_path, store_url, tenant)
    made.write()
    return made


def client_of(server: Running, key: str | None) -> httpx.Client:
    """A client with this key, or with the one that the server has printed."""
    server.wait_for("Serving" if key else "Bearer")
    address = re.search(r"http://127\.0\.0\.1:\d+", server.err)
    printed = re.search(r"curl -H 'Authorization: Bearer (\S+)' ", server.err)
    assert address
    key = key or (printed and printed[1])
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=address[0], headers=headers, timeout=PATIENCE)


def key_of(shop: Shop) -> str | None:
    """A key of our own where others have made theirs: the server then prints none."""
    if shop.url.startswith("sqlite"):
        return None

    async def make() -> str:
        async with SqlSessionStore(shop.url) as store:
            return (await KeyStore(store.database).create(shop.tenant, user=LOCAL_USER)).text

    return asyncio.run(make())


def test_it_serves_and_lets_turns_end(shop: Shop) -> None:
    environment = {"LANGO_STORE__URL": shop.url}
    key = key_of(shop)
    with Running(shop.folder, "serve", "--port", "0", environment=environment) as server:
        with client_of(server, key) as client:
            assert client.get("/v1/agents").json() == {"agents": [{"app": shop.app}]}
            assert client.get("/readyz").json()["ready"]
            assert (
                client.get("/v1/agents", headers={"Authorization": "Bearer x"}).status_code == 401
            )
            session = client.post("/v1/sessions", json={"app": shop.app}).json()["id"]
            path = f"/v1/sessions/{session}/turns"
            accept = {"Accept": "text/event-stream"}
            held = {"message": "call hold {}"}
            with client.stream("POST", path, json=held, headers=accept) as response:
                received: list[str] = []
                for line in response.iter_lines():
                    received.append(line)
                    if line == "event: tool.started":
                        server.process.send_signal(signal.SIGTERM)
                assert received.count("event: tool.started") == 1  # a second signal would not drain
                assert "event: completed" not in received  # the stream ended, and the turn did not
        (shop.folder / "go").touch()
        assert server.end() == 0
    first, *_ = server.err.splitlines()
    assert re.fullmatch(
        rf"Serving {shop.app} at http://127\.0\.0\.1:\d+, and running turns\.", first
    )
    assert server.err.splitlines()[-2:] == [
        "Stopping; turns that still run have 30 s to end.",
        "Stopped.",
    ]
    assert "lango.access" not in server.err
    again = ("serve", "--port", "0", "--no-worker", "--insecure-no-auth")
    environment["LANGO_SERVER__ACCESS_LOG"] = "true"
    with Running(shop.folder, *again, environment=environment) as server:
        server.wait_for("has no authentication")
        found = re.search(r"http://127\.0\.0\.1:\d+", server.err)
        assert found
        with httpx.Client(base_url=found[0], timeout=PATIENCE) as client:
            turns = client.get(path).json()["turns"]
        assert [turn["state"] for turn in turns] == ["completed"]
        server.wait_for(f"127.0.0.1 GET {path} 200 ")
        assert re.search(
            r" INFO lango\.access: \[req_[0-9a-f]+\] 127\.0\.0\.1 GET /v1/", server.err
        )
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 0
    assert "whose turns `lango worker` runs" in server.err


def test_what_it_cannot_serve_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "lango init" in run("serve", "--port", "0").err
    assert list(tmp_path.iterdir()) == []
    shop = Shop(tmp_path, "sqlite:///here.db", "t")
    shop.write()
    assert (
        f"There is no app missing; lango.yaml has {shop.app}."
        in run("serve", "missing", "--port", "0").err
    )
    outside = run("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    assert (outside.code, "server.allowed_hosts" in outside.err) == (1, True)
    monkeypatch.setenv("LANGO_SERVER__ALLOWED_HOSTS", '["api.example"]')
    outside = run("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - refused
    assert (outside.code, "lango keys create" in outside.err) == (1, True)
