"""The example of a page: a person sees an answer come, and goes on after a reload in its middle."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.async_api import expect

from tests.docs.environments import ADDRESS, free_address, reader
from tests.docs.pages import ROOT
from tests.docs.shell import Shell
from tests.support.browsing import chromium, complaints_of

EXAMPLE = ROOT / "examples/page"
SITE = "127.0.0.1:8080"  # where the page says it is


async def test_a_person_can_talk_and_reload(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "page")
    address, site = free_address(), free_address()
    environment = reader(address) | {
        "PORT": site.rpartition(":")[2],
        "LANGO_APPS__ASSISTANT__AGENT__MODEL": "scripted:slow",
    }
    async with Shell(folder, environment) as shell, chromium() as browser:
        await shell.follow(folder / "README.md", {ADDRESS: address, SITE: site})
        page = await browser.new_page()
        complaints = complaints_of(page)
        await page.goto(f"http://{site}")
        await page.get_by_label("Your message").fill("roll dice with 20 sides")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".tool").first).to_have_text('→ roll_dice {"sides":20}')
        await expect(page.locator(".agent")).to_contain_text("I asked")
        await page.reload()
        await expect(page.locator(".user")).to_have_text("roll dice with 20 sides")
        await expect(page.locator(".agent")).to_contain_text("that runs this turn.")
        await page.get_by_label("Your message").fill("thanks")
        await page.keyboard.press("Enter")
        await expect(page.locator(".agent").last).to_have_text("You said: thanks")
        assert complaints == []
