"""However much there is, a page loads a page of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Response, Route, expect

from tests.console.crowd import LONG_ONE, fill
from tests.console.stage import Stage, staged
from tests.console.talking import messages
from tests.support.browsing import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")

SESSIONS, MESSAGES = 400, 600
A_PAGE = 50
A_SHORT_PAGE = 2
MOST_BYTES = 60_000  # of all that a page is given before it is shown


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crowded(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> AsyncIterator[Stage]:
    """A server with many sessions, and a long one."""
    folder = tmp_path_factory.mktemp("crowded")
    (folder / "crowd.db").write_bytes((sqlite_template / "lango.db").read_bytes())
    url = f"sqlite:///{folder / 'crowd.db'}"
    await fill(url, sessions=SESSIONS, messages=MESSAGES)
    with staged(folder, url) as stage:
        yield stage


@dataclass
class ApiResponses:
    """What the API has given a page."""

    answers: list[Response]

    @classmethod
    def to(cls, page: Page) -> ApiResponses:
        given = cls([])
        page.on("response", lambda each: given.answers.append(each) if "/v1/" in each.url else None)
        return given

    async def rows(self, noun: str) -> int:
        """How many things of a kind were listed."""
        body: list[Any] = [json.loads(await each.body()).get(noun) for each in self.answers]
        return sum(len(rows) for rows in body if not isinstance(rows, int | None))

    async def size(self) -> int:
        """Bytes of all answers."""
        return sum([len(await each.body()) for each in self.answers])


@pytest_asyncio.fixture(loop_scope="session")
async def opened(browser: Browser, crowded: Stage) -> AsyncIterator[Page]:
    """A page of its server."""
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    await page.goto(crowded.address)
    await expect(page.locator(".recent li")).to_have_count(30)
    yield page
    await page.close()


async def settle(page: Page) -> None:
    """Go to the end, and wait until the page has seen that and loads nothing.

    Only then it loads older messages when it is scrolled to their top.
    """
    await page.locator(".scroller").evaluate(
        """async (each) => {
             each.scrollTop = each.scrollHeight;
             for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
           }"""
    )
    await expect(page.locator(".history-top")).to_have_text("")


async def test_a_long_conversation(opened: Page, crowded: Stage) -> None:
    given = ApiResponses.to(opened)
    await opened.goto(f"{crowded.url}/console/#/sessions/{LONG_ONE}")
    await expect(messages(opened, "assistant").last).to_contain_text(f"Message {MESSAGES}.")
    assert 10 < await given.rows("messages") <= 2 * A_PAGE  # the page, and the one above it
    assert await given.size() < MOST_BYTES
    for _ in range(3):
        await settle(opened)
        async with opened.expect_response("**/messages?before=*"):
            await opened.locator(".scroller").evaluate("(each) => { each.scrollTop = 0; }")
    assert await given.rows("messages") <= 5 * A_PAGE


async def test_short_pages_load_until_the_top_is_out_of_sight(opened: Page, crowded: Stage) -> None:
    """The first page is loading when the top is reached, and adds too little to move it away."""

    async def shorten(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("limit=40", f"limit={A_SHORT_PAGE}"))

    await opened.route("**/messages?before=*", shorten)
    await opened.goto(f"{crowded.url}/console/#/sessions/{LONG_ONE}")
    await expect(messages(opened, "assistant").last).to_contain_text(f"Message {MESSAGES}.")
    await settle(opened)
    before = await opened.locator(".message").count()
    await opened.locator(".scroller").evaluate("(each) => { each.scrollTop = 0; }")
    await expect(opened.locator(".message").nth(before + 3 * A_SHORT_PAGE - 1)).to_be_attached()


async def test_many_sessions(opened: Page, crowded: Stage) -> None:
    given = ApiResponses.to(opened)
    await opened.goto(f"{crowded.url}/console/#/sessions")
    await expect(opened.locator("tbody tr")).to_have_count(A_PAGE)
    assert await given.rows("sessions") <= A_PAGE
    assert await given.size() < MOST_BYTES
    await opened.get_by_role("button", name="Show more").click()
    await expect(opened.locator("tbody tr")).to_have_count(2 * A_PAGE)
    shown = await opened.locator("tbody th a").evaluate_all("(all) => all.map((one) => one.href)")
    assert len(set(shown)) == 2 * A_PAGE
