"""The page of operations: what waits, runs and has failed, and a retry."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from tests.console.stage import HOSTILE, Stage
from tests.console.talking import IN_SESSION, begin, new_chat
from tests.support.browsing import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")


def section(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name)


async def failed(page: Page) -> str:
    """A turn that fails; a word of its cause that no other has."""
    word = f"w{uuid4().hex[:8]}"
    await new_chat(page)
    await begin(page, f"Is {word} out of stock?")
    await expect(page.locator(".turn").last).to_contain_text("Failed:")
    return word


async def operate(page: Page) -> None:
    await page.get_by_role("link", name="Operations").click()
    await expect(page.get_by_role("heading", name="Operations")).to_be_visible()


async def test_what_waits_and_who_works(page: Page) -> None:
    await begin(page, "Please refund the teapot.")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    session = page.url.partition("#")[2]
    await operate(page)
    item = section(page, "Waiting for an answer").locator("li").last
    await expect(item).to_contain_text("refund")
    await expect(item).to_contain_text('"amount"')
    await expect(section(page, "Open turns by agent").locator("tbody")).to_contain_text("support")
    workers = section(page, "Workers").locator("tbody tr")
    await expect(workers).to_have_count(1)
    await expect(workers).to_contain_text("alive")
    await expect(workers).to_contain_text("research")
    await item.get_by_role("link", name="Session").click()
    await page.wait_for_url(IN_SESSION)
    assert page.url.endswith(session)


async def test_a_failed_turn_is_retried_once_asked(page: Page) -> None:
    word = await failed(page)
    await operate(page)
    item = section(page, "Failed").locator("li").filter(has_text=word)
    await expect(item).to_contain_text("LookupError")
    await expect(item).to_contain_text("agents.py:")
    await expect(item).to_contain_text(HOSTILE)
    assert await page.evaluate("window.hacked") is None
    await item.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(item.get_by_role("button", name="Retry")).to_be_visible()
    await item.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator(".notice")).to_contain_text("Submitted again")
    again = section(page, "Failed").get_by_role("link", name="Retried")
    await expect(again.first).to_be_visible()
    await again.first.click()
    await expect(page.locator(".timeline")).to_be_visible()


async def test_it_looks_again_and_says_when_it_cannot(browser: Browser, stage: Stage) -> None:
    """In a context of its own: the browser complains of the answers that this test makes up."""
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE * 1_000)
    page = await context.new_page()
    await page.goto(stage.address)
    await operate(page)
    tiles = section(page, "Now").locator(".tiles div")
    await expect(tiles.filter(has_text="Workers alive")).to_contain_text("1")

    async def busy(route: Route) -> None:
        await route.fulfill(status=503, json={"title": "The server is busy."})

    async def more(route: Route) -> None:
        response = await route.fetch()
        body = await response.json()
        body["turns"]["scheduled"] = 41
        await route.fulfill(response=response, json=body)

    await page.route("**/v1/workers", busy)
    await expect(page.get_by_text("Not up to date: The server is busy.")).to_be_visible()
    await expect(section(page, "Workers").locator("tbody tr")).to_have_count(1)
    await page.unroute("**/v1/workers")
    await page.route("**/v1/workload", more)
    await expect(tiles.filter(has_text="Scheduled")).to_contain_text("41")
    await expect(page.get_by_text("Not up to date")).to_have_count(0)
    await context.close()


async def test_a_reader_keeps_the_focus(page: Page) -> None:
    """Only new data redraws the section that has the focus."""
    await failed(page)
    await operate(page)
    button = section(page, "Failed").get_by_role("button", name="Retry").first
    await button.focus()
    workload = re.compile(r"/v1/workload$")
    for _ in range(2):
        async with page.expect_response(workload):
            pass
    await expect(button).to_be_focused()
    word = await failed_elsewhere(page)
    await expect(section(page, "Failed")).to_contain_text(word)


async def failed_elsewhere(page: Page) -> str:
    """A turn that fails while the page is open; a word of its cause."""
    word = f"w{uuid4().hex[:8]}"
    script = """async (text) => {
      const key = JSON.parse(sessionStorage.getItem("lango.access")).key;
      const send = async (path, body) => (await fetch(path, {
        method: "POST", body: JSON.stringify(body),
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      })).json();
      const session = await send("../v1/sessions", { app: "support" });
      await send(`../v1/sessions/${session.id}/turns`, { message: text });
    }"""
    await page.evaluate(script, f"Is {word} out of stock?")
    return word


async def test_who_is_no_admin_has_no_such_page(page: Page) -> None:
    async def user(route: Route) -> None:
        response = await route.fetch()
        await route.fulfill(response=response, json={**await response.json(), "scopes": ["chat"]})

    await expect(page.get_by_role("link", name="Operations")).to_be_visible()
    await page.route("**/v1/me", user)
    await page.reload()
    await expect(page.get_by_role("link", name="Usage")).to_be_visible()
    await expect(page.locator(".who")).to_have_text("user")
    await expect(page.get_by_role("link", name="Operations")).to_have_count(0)
