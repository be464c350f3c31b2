"""Everyone can use it: axe finds nothing to complain about on any page, in light and in dark."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.console.stage import Stage
from tests.console.talking import begin, composer, ended, messages, view
from tests.support.browsing import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE = Path(__file__).parent
SCRIPT_HASH = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
"""Of the version that package.json names: no lock file says it, as they hold addresses."""
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core, installed where it is missing."""
    script = HERE / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        assert npm, "npm is needed to install axe-core"
        options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
        subprocess.run([npm, "install", *options], cwd=HERE, check=True, timeout=300)
    text = script.read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() == SCRIPT_HASH
    return text


@pytest_asyncio.fixture(loop_scope="session", params=["light", "dark"])
async def looked_at(
    browser: Browser, stage: Stage, request: pytest.FixtureRequest
) -> AsyncIterator[Page]:
    """The console in either scheme, in a session with a tool call, thoughts and a question."""
    scheme: Literal["light", "dark"] = request.param
    context = await browser.new_context(viewport=DESK, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1_000)
    page = await context.new_page()
    await page.goto(stage.address)
    await expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    yield page
    await context.close()


async def violations(page: Page, axe: str) -> list[str]:
    """What axe says, on a desk and on a phone."""
    found: list[str] = []
    for size in (DESK, PHONE):
        await page.set_viewport_size(size)
        await page.evaluate(axe)
        report: dict[str, Any] = await page.evaluate("axe.run()")
        assert "color-contrast" in {each["id"] for each in report["passes"]}  # it has looked
        found += [
            f"{size['width']}: {each['id']}: {node['html']} {json.dumps(node['any'])[:400]}"
            for each in report["violations"]
            for node in each["nodes"]
        ]
    await page.set_viewport_size(DESK)
    return found


async def fits(page: Page) -> bool:
    """Whether nothing is wider than a phone."""
    await page.set_viewport_size(PHONE)
    wide = await page.evaluate(
        "[document.documentElement, document.querySelector('main')]"
        ".some((each) => each.scrollWidth > each.clientWidth)"
    )
    await page.set_viewport_size(DESK)
    return not wide


async def check(page: Page, axe: str) -> None:
    assert await violations(page, axe) == []
    assert await fits(page)


async def test_a_session(looked_at: Page, axe: str) -> None:
    page = looked_at
    await check(page, axe)
    await begin(page)
    await ended(page)
    await page.locator(".tool summary").first.click()
    await page.get_by_text("Thoughts").click()
    await composer(page).fill("Please refund it.")
    await composer(page).press("Enter")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await check(page, axe)
    await page.get_by_role("button", name="Approve").click()
    await expect(messages(page, "assistant").last).to_contain_text("RF-20931")
    await view(page, "Context")
    await page.locator(".section summary").first.click()
    await check(page, axe)
    await view(page, "Timeline")
    await expect(page.locator(".timeline")).to_be_visible()
    await check(page, axe)


async def test_the_other_pages(looked_at: Page, axe: str) -> None:
    page = looked_at
    await begin(page, "hello")
    await ended(page)
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.locator("tbody tr").first).to_be_visible()
    await check(page, axe)
    await page.get_by_role("button", name="Delete").first.click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await check(page, axe)
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Memory").click()
    await expect(page.get_by_label("Entries", exact=True).locator("li").first).to_be_visible()
    await check(page, axe)
    await page.get_by_label("Words", exact=True).fill("absent9471")
    await expect(page.get_by_text("No entry has any of these words.")).to_be_visible()
    await check(page, axe)
    await page.get_by_role("link", name="Usage").click()
    await page.get_by_text("As a table").click()
    await check(page, axe)
    await page.get_by_role("link", name="Operations").click()
    await expect(page.get_by_role("region", name="Workers").locator("table")).to_be_visible()
    await check(page, axe)
    await page.get_by_role("button", name="Shortcuts").click()
    await check(page, axe)
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("API key or token")).to_be_visible()
    await check(page, axe)
