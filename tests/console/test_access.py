"""Who gets in, and where the key is kept."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.console.stage import Stage
from tests.console.talking import composer
from tests.support.browsing import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_key_leaves_the_address_at_once(page: Page, stage: Stage) -> None:
    await expect(composer(page)).to_be_visible()
    assert page.url == f"{stage.url}/console/#/"
    await page.reload()
    await expect(composer(page)).to_be_visible()
    assert await page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
    assert stage.key in await page.evaluate("JSON.stringify(sessionStorage)")


async def test_the_key_is_asked_for(browser: Browser, stage: Stage) -> None:
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(f"{stage.url}/console")  # which leads to /console/
    key = page.get_by_label("API key or token")
    await key.fill("lango_nonsense")
    await key.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("does not know this key")
    await key.fill(stage.key)
    await key.press("Enter")
    await expect(composer(page)).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(key).to_be_visible()
    assert await page.evaluate("JSON.stringify(sessionStorage)") == "{}"
    await page.close()


async def test_acting_as_a_user(browser: Browser, stage: Stage) -> None:
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(f"{stage.url}/console/")
    await page.get_by_label("API key or token").fill(stage.key)
    await page.get_by_text("Act as a user").click()
    await page.get_by_label("User id, for a key that speaks for others").fill("Zoë 早")
    await page.keyboard.press("Enter")
    await expect(page.locator(".who")).to_have_text("Zoë 早")
    await page.close()


async def test_an_address_that_leads_nowhere_leads_home(page: Page, stage: Stage) -> None:
    await expect(composer(page)).to_be_visible()
    await page.goto(f"{stage.url}/console/#/nowhere")
    await expect(page.get_by_role("heading", name="New chat")).to_be_visible()


async def test_a_page_that_cannot_be_shown_says_why(browser: Browser, stage: Stage) -> None:
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(stage.address)
    await page.goto(f"{stage.url}/console/#/sessions/ses_unknown")
    await expect(page.get_by_role("alert")).to_contain_text("no such session", ignore_case=True)
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()
    await page.close()
