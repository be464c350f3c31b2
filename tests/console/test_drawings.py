"""What a model saw, what a turn did, what was used: drawn."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.console.talking import OFFER, begin, ended, messages, say, view

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = "0af7651916cd43dd8448eb211c80319c"
LONG = "many-words-about-nothing-in-particular-" * 40


async def test_the_context_window(page: Page) -> None:
    await begin(page)
    await expect(messages(page, "assistant").last).to_contain_text(OFFER)
    for _ in range(5):
        await say(page, LONG)
        await ended(page)
    await view(page, "Context")
    drawing = page.get_by_label("The context window")
    await expect(drawing.locator(".section[data-kind=cut]")).to_contain_text(
        "over the token budget"
    )
    await expect(drawing.locator(".section[data-kind=system]")).to_contain_text("support desk")
    await expect(drawing.locator(".section[data-kind=turn]")).to_have_count(1)
    await expect(drawing.locator(".budget-line")).to_be_visible()
    await drawing.locator(".section[data-kind=system] summary").click()
    await expect(drawing.locator("pre:visible")).to_contain_text("Be brief, be kind")
    calls = page.get_by_label("Model calls").get_by_role("link")
    await expect(calls).to_have_count(8)  # two for the order, five for the words, and the next
    await calls.first.click()
    await expect(drawing.locator(".section[data-kind=cut]")).to_have_count(0)
    await expect(drawing.locator(".section[data-kind=turn]")).to_contain_text("order 1042")
    await calls.last.click()
    await expect(drawing.get_by_role("heading", name="The next call")).to_be_visible()
    await expect(drawing.locator(".section[data-kind=cut]")).to_contain_text("messages")


async def test_the_timeline(page: Page) -> None:
    await begin(page, "Please refund the teapot.")
    await page.get_by_role("button", name="Approve").click()
    await expect(messages(page, "assistant").last).to_contain_text("RF-20931")
    await ended(page)
    await view(page, "Timeline")
    rows = page.locator(".timeline tbody tr")
    for kind in ("queue", "attempt", "model", "tool", "wait"):
        await expect(rows.and_(page.locator(f"[data-kind={kind}]")).first).to_be_visible()
    await expect(page.locator("tr[data-kind=wait]")).to_contain_text("approved")
    await expect(page.locator("tr[data-kind=model] .number").first).to_contain_text("s")
    inside = await page.evaluate(
        """[...document.querySelectorAll(".step")].every((step) => {
             const [bar, track] = [step, step.parentElement].map((e) => e.getBoundingClientRect());
             return bar.left >= track.left - 1 && bar.right <= track.right + 4;
           })"""
    )
    assert inside
    await page.locator("tr[data-kind=model] a").first.click()
    await expect(page.get_by_label("The context window")).to_be_visible()


async def test_the_timeline_names_the_trace(page: Page) -> None:
    async def traced(route: Route) -> None:  # as of a server that sends traces
        response = await route.fetch()
        await route.fulfill(response=response, json={**await response.json(), "trace_id": TRACE})

    await begin(page, "hello")
    await ended(page)
    await view(page, "Timeline")
    facts = page.locator(".facts-list")
    await expect(facts).to_contain_text("Model calls")
    await expect(facts).not_to_contain_text("Trace")
    await page.route("**/timeline", traced)
    await page.reload()
    await expect(facts.locator("div", has_text="Trace").locator("code")).to_have_text(TRACE)


async def test_usage(page: Page) -> None:
    await begin(page, "hello")
    await ended(page)
    await page.get_by_role("link", name="Usage").click()
    await expect(page.get_by_role("img", name="Tokens a day")).to_be_visible()
    await expect(page.locator(".shares").filter(has_text="By app")).to_contain_text("support")
    await expect(page.locator(".shares").filter(has_text="By user")).to_contain_text("user")
    await page.get_by_role("button", name="7 days").click()
    await expect(page.get_by_role("button", name="7 days")).to_have_attribute(
        "aria-pressed", "true"
    )
    await page.get_by_text("As a table").click()
    await expect(page.locator(".as-table tbody tr")).to_have_count(1)
