"""The list of sessions: finding, renaming, exporting, deleting."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

from tests.console.talking import begin, ended, new_chat

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def listed(page: Page, *titles: str) -> str:
    """Sessions with a word in their titles that no other has; then the list."""
    word = uuid4().hex[:8]
    for title in titles:
        await new_chat(page)
        await begin(page, f"{title} {word}")
        await ended(page)
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await page.get_by_label("Title").fill(word)
    await expect(page.locator("tbody tr")).to_have_count(len(titles))
    return word


async def test_search_and_filters(page: Page) -> None:
    word = await listed(page, "apples", "pears")
    await expect(page.locator("tbody th").first).to_have_text(f"pears {word}")
    await page.get_by_label("Title").fill(f"apples {word}")
    await expect(page.locator("tbody th")).to_have_text([f"apples {word}"])
    await page.get_by_label("Title").fill(word)
    for label, value in (("Agent", "research"), ("Status", "failed")):
        await page.get_by_label(label).select_option(value)
        await expect(page.get_by_text("No session is like that.")).to_be_visible()
        await page.get_by_label(label).select_option("")
        await expect(page.locator("tbody tr")).to_have_count(2)
    for label, value in (("User", "stranger"), ("From", "2999-01-01"), ("To", "2000-01-01")):
        await page.get_by_label(label).fill(value)
        await expect(page.get_by_text("No session is like that.")).to_be_visible()
        await page.get_by_label(label).fill("")
        await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_label("Status").select_option("completed")
    await expect(page.locator("tbody tr")).to_have_count(2)


async def test_rename_and_delete(page: Page) -> None:
    word = await listed(page, "old")
    await page.get_by_role("button", name="Rename").click()
    await page.get_by_role("dialog").get_by_label("Title").fill(f"new {word}")
    await page.keyboard.press("Enter")
    await expect(page.locator("tbody th")).to_have_text([f"new {word}"])
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("tbody tr")).to_have_count(0)


async def test_export(page: Page, tmp_path: Path) -> None:
    word = await listed(page, "keep")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    saved = await download.value
    await saved.save_as(tmp_path / "saved")
    lines = [json.loads(line) for line in (tmp_path / "saved").read_text().splitlines()]
    assert saved.suggested_filename.endswith(".jsonl")
    assert (lines[0]["kind"], lines[-1]["kind"]) == ("lango.session", "end")
    assert word in (tmp_path / "saved").read_text()


async def test_the_list_beside_the_conversation(page: Page) -> None:
    word = uuid4().hex[:8]
    await begin(page, f"first {word}")
    await ended(page)
    recent = page.get_by_label("Recent sessions")
    await expect(recent.locator("[aria-current]")).to_contain_text(f"first {word}")
    await recent.get_by_label("Search sessions").fill(word)
    await expect(recent.locator("li")).to_have_count(1)
    await page.get_by_label("Actions").click()
    await page.get_by_role("button", name="Rename").click()
    await page.get_by_role("dialog").get_by_label("Title").fill(f"second {word}")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name=f"second {word}")).to_be_visible()
    await expect(recent.locator("li")).to_contain_text([f"second {word}"])
