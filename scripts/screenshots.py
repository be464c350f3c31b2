"""Take the pictures of the console that the documentation shows: `make screenshots`."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, Route, ViewportSize, expect

from tests.console.crowd import fill
from tests.console.stage import Stage, staged
from tests.console.talking import begin, composer, ended, messages, new_chat, say, view
from tests.support.browsing import chromium

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
MOST_BYTES = 200_000
SCALE = 1.25
DESK: ViewportSize = {"width": 1280, "height": 800}
TALL: ViewportSize = {"width": 1280, "height": 880}
PHONE: ViewportSize = {"width": 390, "height": 800}
QUESTIONS = (
    "Which green tea has the least caffeine, and how should I brew it?",
    "My sister lives in Norway. Do you ship there, what does it cost, and how long does it take?",
    "I was charged twice for the cups last week. Can you see what happened there?",
    "And is there a filter for the small pot?",
    "Does that filter come in another size?",
    "Good. Does the filter keep the leaves of a fine Sencha back?",
    "Then please put one filter aside for me.",
)


async def shoot(page: Page, name: str) -> None:
    """Save what is seen, once nothing moves."""
    await page.mouse.move(640, 0)
    await page.wait_for_load_state("networkidle")
    path = IMAGES / f"console-{name}.png"
    await page.screenshot(path=path, animations="disabled", caret="hide")
    size = path.stat().st_size
    print(f"{path.name}: {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        sys.exit(f"{path.name} is larger than {MOST_BYTES / 1000:.0f} kB")


async def opened(
    browser: Browser, address: str, scheme: Literal["light", "dark"], size: ViewportSize = DESK
) -> Page:
    """A page of its own."""
    context = await browser.new_context(
        viewport=size, color_scheme=scheme, device_scale_factor=SCALE, locale="en-GB"
    )
    page = await context.new_page()
    await page.goto(address)
    await expect(composer(page)).to_be_visible()
    return page


async def converse(page: Page) -> None:
    """A session with tool calls, an answer and a question, and more than its budget holds."""
    await begin(page, QUESTIONS[0])
    await ended(page)
    for question in QUESTIONS[1:]:
        await say(page, question)
        await ended(page)
    await new_chat(page)
    await begin(page)
    await expect(messages(page, "assistant").last).to_contain_text("Shall I refund")
    await ended(page)


CAUSE = {
    "type": "ConnectError",
    "message": "The server of the stock does not answer.",
    "place": "/srv/shop/tools.py:31, in find_stock",
}


async def with_cause(route: Route) -> None:
    """Show a cause without the path of this checkout."""
    response = await route.fetch()
    body = await response.json()
    failures = [{**turn, "cause": CAUSE} for turn in body["failures"] if turn["error"]]
    await route.fulfill(response=response, json={**body, "failures": failures})


async def operate(page: Page) -> None:
    """The page of operations, with a turn that failed, one that waits and one that runs."""
    await page.route("**/v1/failures", with_cause)
    await new_chat(page)
    await begin(page, "Please refund the teapot.")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await new_chat(page)
    await begin(page, "Is the Gyokuro out of stock?")
    await expect(page.get_by_text("Failed:").first).to_be_visible()
    await new_chat(page)
    await begin(page, "Tell me a story")
    await page.get_by_role("link", name="Operations").click()
    await expect(page.get_by_role("button", name="Retry").first).to_be_visible()
    await shoot(page, "operations")


async def take(browser: Browser, stage: Stage) -> None:
    """All pictures."""
    page = await opened(browser, stage.address, "light", TALL)
    await converse(page)
    await say(page, "Yes, please refund it.")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await shoot(page, "chat")
    session = page.url.partition("#")[2]

    async def elsewhere(name: str, scheme: Literal["light", "dark"], size: ViewportSize) -> None:
        other = await opened(browser, stage.address, scheme, size)
        await other.goto(f"{stage.url}/console/#{session}")
        await expect(other.get_by_role("button", name="Approve")).to_be_visible()
        await shoot(other, name)

    await elsewhere("chat-dark", "dark", TALL)
    await elsewhere("phone", "light", PHONE)
    await page.set_viewport_size(DESK)
    await page.get_by_role("button", name="Approve").click()
    await expect(messages(page, "assistant").last).to_contain_text("RF-20931")
    await ended(page)
    await view(page, "Timeline")
    await expect(page.locator(".timeline")).to_be_visible()
    await shoot(page, "timeline")
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.locator(".sessions tbody tr").first).to_be_visible()
    await shoot(page, "sessions")
    await page.get_by_role("link", name="Memory").click()
    await page.get_by_label("Words", exact=True).fill("filter for the small pot")
    await expect(page.get_by_label("Entries", exact=True).locator("li").first).to_contain_text(
        "filter"
    )
    await shoot(page, "memory")
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await page.get_by_role("link", name=QUESTIONS[0][:40]).click()
    await view(page, "Context")
    await expect(page.locator(".section[data-kind=cut]")).to_be_visible()
    await shoot(page, "context")
    await page.get_by_role("link", name="Usage").click()
    await expect(page.get_by_role("img", name="Tokens a day")).to_be_visible()
    await shoot(page, "usage")
    await operate(page)


async def main() -> None:
    """Serve a made-up shop, and take pictures of it."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        url = f"sqlite:///{folder}/shop.db"
        await fill(url, sessions=60, messages=24)
        with staged(Path(folder), url, delay=0.03) as stage:
            async with chromium() as browser:
                await take(browser, stage)


if __name__ == "__main__":
    asyncio.run(main())
