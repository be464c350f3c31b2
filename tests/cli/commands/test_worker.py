"""`lango worker`: runs turns that others submitted, until it is stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url

from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.database import LocalEngine
from lango.turns.service import Turns
from tests.cli.processes import PATIENCE, Running
from tests.cli.running import run
from tests.cli.slow_shop import SLOW, WORDS, Shop

PASSWORD = "s3cret"


@pytest.fixture
def shop(tmp_path: Path, store_url: str, tenant: str) -> Shop:
    """On either database; the one that has passwords is given one."""
    made = Shop(tmp_path, store_url, tenant)
    made.write(worker="{drain: 3600}")
    return made


def environment(shop: Shop, **more: str) -> dict[str, str]:
    url = make_url(shop.url)
    if url.host is not None:
        url = url.set(password=PASSWORD)
    return {"LANGO_STORE__URL": url.render_as_string(hide_password=False), **more}


async def test_it_runs_turns_and_lets_them_end(shop: Shop) -> None:
    arguments = ("worker", "--concurrency", "7")
    async with SqlSessionStore(shop.url) as store, LocalEngine(store.database) as engine:
        turns = Turns(store, engine, tenant=shop.tenant)
        with Running(shop.folder, *arguments, environment=environment(shop, **SLOW)) as worker:
            worker.wait_for(f"Running turns of {shop.app}, up to 7 at a time, from ")
            turn = await turns.submit(shop.app, WORDS)
            async for event in turns.events(turn.id):
                if event.type == "message.delta":
                    break
            worker.process.send_signal(signal.SIGTERM)
            worker.wait_for("Stopping")
            assert worker.end() == 0
        assert (await turns.get(turn.id)).state == "completed"
    lines = [line for line in worker.err.splitlines() if " INFO lango.turns.attempt: " not in line]
    assert [line.partition(" ")[0] for line in lines] == ["Running", "Stopping;", "Stopped."]
    assert (worker.out, PASSWORD in worker.err) == ("", False)


async def test_it_answers_probes(shop: Shop) -> None:
    with Running(
        shop.folder, "worker", "--probe-port", "0", environment=environment(shop)
    ) as worker:
        worker.wait_for("Probes are answered on port ")
        port = int(worker.err.partition(" on port ")[2].partition(".")[0])
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            assert (await client.get("/healthz")).status_code == 200
            ready = (await client.get("/readyz")).json()
            assert (await client.get("/v1/sessions")).status_code == 404
        assert (ready["ready"], ready["worker"]) == (True, "ok")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("Stopping")
        assert worker.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
async def test_a_second_signal_ends_it_at_once(shop: Shop, number: signal.Signals) -> None:
    slower = environment(shop, SHOP_DELAY="3600")
    async with SqlSessionStore(shop.url) as store, LocalEngine(store.database) as engine:
        turns = Turns(store, engine, tenant=shop.tenant)
        with Running(shop.folder, "worker", shop.app, environment=slower) as worker:
            worker.wait_for("Running")
            turn = await turns.submit(shop.app, "hi")
            async for event in turns.events(turn.id):
                if event.type == "started":
                    break
            worker.process.send_signal(number)
            worker.wait_for("Stopping; 1 turn is still running and has 3600 s to end.")
            worker.process.send_signal(number)
            assert worker.end() == -number
        assert (await turns.get(turn.id)).state == "running"


def test_what_it_cannot_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "lango init" in run("worker").err
    assert list(tmp_path.iterdir()) == []
    Shop(tmp_path, "sqlite:///here.db", "t").write()
    assert "There is no app missing; lango.yaml has shop_t." in run("worker", "missing").err
