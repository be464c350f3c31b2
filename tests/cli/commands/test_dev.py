"""`lango dev`: ADK's own web UI on our store, for this machine alone."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.cli.processes import PATIENCE, Running
from tests.cli.running import run
from tests.cli.slow_shop import Shop
from tests.support.browsing import PATIENCE as PAGE_PATIENCE
from tests.support.browsing import chromium

SAID = ("Good morning", "And good night")


@contextmanager
def running(shop: Shop) -> Generator[tuple[Running, str]]:
    """The command, and where its pages are; ADK's own settings stay in the test's folder."""
    shop.write()
    home = {"HOME": str(shop.folder)}
    with Running(shop.folder, "dev", "--port", "0", environment=home) as dev:
        dev.wait_for("/dev-ui/")
        address = re.search(r"http://127\.0\.0\.1:\d+", dev.err)
        assert address
        yield dev, address[0]


async def talk(address: str, app: str, picture: Path) -> str:
    """Hold the conversation; the session's id. Nothing from elsewhere reaches the page."""
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PAGE_PATIENCE * 1_000)
        await page.route(lambda url: not url.startswith(f"{address}/"), lambda route: route.abort())
        await page.goto(f"{address}/dev-ui/?app={app}")
        await page.get_by_role("button", name="No Thanks").click()  # may it report to Google?
        box = page.get_by_placeholder("Type a message...")
        for text in SAID:
            await box.fill(text)
            await box.press("Enter")
            await page.get_by_text(f"You said: {text}").wait_for()
        await page.screenshot(path=picture)
        return parse_qs(urlsplit(page.url).query)["session"][0]


def test_a_conversation_in_adks_web_ui_is_in_our_tables(
    tmp_path: Path, store_url: str, tenant: str
) -> None:
    shop = Shop(tmp_path, store_url, tenant)
    with running(shop) as (dev, address):
        session = asyncio.run(talk(address, shop.app, tmp_path / "conversation.png"))
        dev.process.send_signal(signal.SIGTERM)
        assert dev.end() == 0
    answered = [(("user", text), ("assistant", f"You said: {text}")) for text in SAID]
    assert shop.history(session) == [line for pair in answered for line in pair]
    assert "Stopped." in dev.err
    assert "Traceback" not in dev.err


def test_it_is_closed_to_others(tmp_path: Path, sqlite_url: str, tenant: str) -> None:
    shop = Shop(tmp_path, sqlite_url, tenant)
    with running(shop) as (_, address), httpx.Client(base_url=address, timeout=PATIENCE) as client:
        assert client.get("/list-apps").json() == [shop.app]
        sessions = f"/apps/{shop.app}/users/user/sessions"
        foreign = client.get("/list-apps", headers={"Host": "lango.example"})
        assert (foreign.status_code, foreign.json()["type"]) == (421, "urn:lango:error:wrong-host")
        origin = {"Origin": "https://lango.example"}
        assert client.post(sessions, json={}, headers=origin).status_code == 403
        assert client.post(sessions, json={}).status_code == 200
        for path in ("builder/save", "tests/run", "deploy"):
            tool = client.post(f"/dev/apps/{shop.app}/{path}")
            assert (tool.status_code, tool.json()["type"]) == (403, "urn:lango:error:forbidden")
        unknown = client.post("/apps/__agent_builder_assistant/users/user/sessions", json={})
        body = {
            "app_name": "__agent_builder_assistant",
            "user_id": "user",
            "session_id": unknown.json().get("id", "none"),
            "new_message": {"role": "user", "parts": [{"text": "hi"}]},
        }
        assert client.post("/run", json=body).status_code == 404


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "lango.example", "::"])  # noqa: S104
def test_it_serves_this_machine_alone(host: str) -> None:
    output = run("dev", "--host", host)
    assert output.code == 1
    assert "lango serve" in output.err
