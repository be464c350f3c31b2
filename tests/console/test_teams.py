"""Conversations with several agents: hand-overs, authors, and what a screen reader reads out."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.console.stage import CLERK, PAIR, TEAM, Stage
from tests.console.talking import announcements, begin, ended, messages, say
from tests.console.teams import DESK, FIRST_WORDS, LAST_WORDS, ROUNDS, TEA

pytestmark = pytest.mark.asyncio(loop_scope="session")

HAND_OVERS = [f"Handed over to {TEA}", f"Handed over to {DESK}"] * ROUNDS
BEFORE_THE_GATE = "So much for tea."


def growing(page: Page) -> Locator:
    """The message that is being written."""
    return page.locator(".message[data-growing]:visible")


async def items(page: Page) -> list[str]:
    """The messages and notes of the conversation, in order."""
    return await page.locator(".message:visible .text, .note").all_inner_texts()


async def test_each_hand_over_is_shown_live_and_after_a_reload(page: Page, stage: Stage) -> None:
    await begin(page, "Tell me about tea.", agent=TEAM)
    await expect(messages(page, "assistant").last).to_contain_text(BEFORE_THE_GATE)
    await expect(page.locator(".note")).to_have_text(HAND_OVERS)
    shown = await items(page)
    await page.reload()  # history and event log now both have the hand-overs
    await expect(messages(page, "assistant").last).to_contain_text(BEFORE_THE_GATE)
    assert await items(page) == shown
    stage.open_gate()
    await expect(messages(page, "assistant").last).to_contain_text("Anything else?")
    await ended(page)
    shown = await items(page)
    await page.reload()
    await expect(messages(page, "assistant").last).to_contain_text("Anything else?")
    assert await items(page) == shown
    await expect(page.locator(".note")).to_have_text(HAND_OVERS)


async def test_an_unfinished_message_has_the_name_of_its_agent(page: Page) -> None:
    await begin(page, "Tell me about tea.", agent=TEAM)
    await expect(growing(page)).to_contain_text(BEFORE_THE_GATE)
    await expect(growing(page).locator(".thoughts")).to_have_count(1)
    await expect(growing(page)).to_have_attribute("aria-label", DESK)
    await expect(growing(page).locator(".author")).to_have_text(DESK)


async def test_concurrent_messages_are_read_out_one_after_the_other(
    page: Page, stage: Stage
) -> None:
    await begin(page, "How is the weather?", agent=PAIR)
    await expect(growing(page).filter(has_text="In the north")).to_have_count(1)
    await expect(growing(page).filter(has_text="In the south")).to_have_count(1)
    stage.open_gate()
    await ended(page)
    spoken = " ".join(await announcements(page).all_inner_texts())
    north, south = (f"In the {name} it rains. It is cold there." for name in ("north", "south"))
    assert spoken in (f"{north} {south}", f"{south} {north}")


async def test_whole_messages_are_read_out_once(page: Page, stage: Stage) -> None:
    async def when_stored(route: Route) -> None:
        """Answer once the history has the first message, which is then not read live."""
        history = await route.fetch()
        while FIRST_WORDS not in await history.text():
            history = await route.fetch()
        await route.fulfill(response=history)

    await page.route("**/v1/sessions/*/messages*", when_stored)
    await begin(page, "Read the files.", agent=CLERK)
    await expect(announcements(page)).to_have_text([FIRST_WORDS])
    await page.reload()
    await expect(messages(page, "assistant")).to_have_text([FIRST_WORDS])
    stage.open_gate()
    await expect(announcements(page)).to_have_text([LAST_WORDS])
    await say(page, "Once more.")
    await expect(announcements(page)).to_have_text([LAST_WORDS, FIRST_WORDS, LAST_WORDS])
