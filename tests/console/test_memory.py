"""The page of memory: what was said is listed, found, and deleted."""

from __future__ import annotations

from uuid import uuid4

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.console.stage import HOSTILE
from tests.console.talking import IN_SESSION, begin, ended, new_chat

pytestmark = pytest.mark.asyncio(loop_scope="session")


def entries(page: Page) -> Locator:
    return page.get_by_label("Entries", exact=True).locator("li")


async def remembered(page: Page, *texts: str, entries_of_each: int = 2) -> str:
    """Say some texts, each in a session of its own, with a word that no other has; then search.

    There are two entries of each text: the agent repeats most of them.
    """
    word = f"w{uuid4().hex[:8]}"
    for text in texts:
        await new_chat(page)
        await begin(page, f"{text} {word}")
        await ended(page)
    await page.get_by_role("link", name="Memory").click()
    await page.get_by_label("Words", exact=True).fill(word)
    await expect(entries(page)).to_have_count(entries_of_each * len(texts))
    return word


async def test_search(page: Page) -> None:
    word = await remembered(page, "apples", "pears")
    await page.get_by_label("Words", exact=True).fill(f"apples {word}")
    await expect(entries(page).first).to_contain_text("apples")
    await page.get_by_label("Words", exact=True).fill("absent9471")
    await expect(page.get_by_text("No entry has any of these words.")).to_be_visible()
    await expect(page.get_by_role("button", name="Delete all")).to_be_disabled()
    await page.get_by_label("Words", exact=True).fill("")
    await expect(entries(page).first).to_contain_text(f"You said: pears {word}")
    await page.get_by_role("combobox", name="Agent").select_option("research")
    await expect(page.get_by_text("Nothing yet.")).to_be_visible()
    await page.get_by_role("combobox", name="Agent").select_option("support")
    await page.get_by_label("User", exact=True).fill("stranger")
    await expect(page.get_by_text("Nothing yet.")).to_be_visible()
    await page.get_by_label("User", exact=True).fill("")
    await expect(page.get_by_text("Write whose memory to show.")).to_be_visible()


async def test_an_entry_leads_to_its_session(page: Page) -> None:
    word = await remembered(page, "figs")
    await entries(page).first.get_by_role("link", name="Session").click()
    await page.wait_for_url(IN_SESSION)
    await expect(page.get_by_role("heading", name=f"figs {word}")).to_be_visible()


async def test_deleting_an_entry(page: Page) -> None:
    word = await remembered(page, "plums")
    own = entries(page).filter(has_not_text="You said")
    await own.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(entries(page)).to_have_count(2)
    await own.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(entries(page)).to_have_count(1)
    await expect(entries(page).get_by_role("button", name="Delete")).to_be_focused()
    await page.reload()
    await page.get_by_label("Words", exact=True).fill(word)
    await expect(entries(page)).to_have_count(1)
    await expect(entries(page)).to_contain_text(f"You said: plums {word}")


async def test_text_stays_text(page: Page) -> None:
    await remembered(page, f"hostile {HOSTILE}", entries_of_each=1)
    await expect(entries(page)).to_contain_text(HOSTILE)
    assert await page.evaluate("window.hacked") is None


async def test_long_texts_unfold_and_long_lists_go_on(page: Page) -> None:
    """The page's answers are made up here: to say so much would take long."""
    answers = [
        {"entries": [entry(number) for number in range(50)], "next": 50},
        {"entries": [entry(number) for number in range(50, 60)], "next": None},
    ]
    requests: list[str] = []

    async def answer(route: Route) -> None:
        requests.append(route.request.url)
        await route.fulfill(json=answers["after=50" in route.request.url])

    await page.route("**/v1/memory?*", answer)
    await page.get_by_role("link", name="Memory").click()
    await expect(entries(page)).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(entries(page)).to_have_count(60)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    first = entries(page).first
    assert len(await first.inner_text()) < 700
    await first.get_by_role("button", name="Show all").click()
    await expect(first).to_contain_text("the end")
    assert len(requests) == 2


async def test_deleting_all(page: Page) -> None:
    """Behind a server of its own words: others on this stage have their memory, too."""
    left = [[entry(1), entry(2)]]
    methods: list[str] = []

    async def answer(route: Route) -> None:
        methods.append(route.request.method)
        if route.request.method == "DELETE":
            assert "app=support&user=user" in route.request.url
            left[0] = []
            await route.fulfill(status=204)
        else:
            await route.fulfill(json={"entries": left[0], "next": None})

    await page.route("**/v1/memory?*", answer)
    await page.get_by_role("link", name="Memory").click()
    await expect(entries(page)).to_have_count(2)
    await page.get_by_role("button", name="Delete all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(entries(page)).to_have_count(2)
    await page.get_by_role("button", name="Delete all").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete all").click()
    await expect(page.get_by_text("Nothing yet.")).to_be_visible()
    assert methods == ["GET", "DELETE", "GET"]


def entry(number: int) -> dict[str, object]:
    return {
        "id": str(number),
        "text": "a long text " * 100 + "the end",
        "role": "user",
        "author": "",
        "session": None,
        "alias": None,
        "metadata": None,
        "at": "2026-11-01T12:00:00Z",
    }
