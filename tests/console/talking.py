"""What a person does in the console, in a word each."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

ORDER = "The teapot of order 1042 came broken. What can you do?"
OFFER = "Shall I refund the teapot?"
IN_SESSION = "**/console/#/sessions/ses_*"


def composer(page: Page) -> Locator:
    return page.get_by_label("Message", exact=True)


async def say(page: Page, text: str) -> None:
    """Write a message and send it; it is there once the server has it."""
    before = await messages(page, "user").count()
    await composer(page).fill(text)
    await composer(page).press("Enter")
    await expect(messages(page, "user")).to_have_count(before + 1)


async def view(page: Page, name: str) -> None:
    """Look at the session in another way."""
    views = page.get_by_label("Views of the session")
    await views.get_by_role("link", name=name).click()
    await expect(views.locator("[aria-current]")).to_have_text(name)


async def new_chat(page: Page) -> None:
    """Leave the session."""
    await page.keyboard.press("Alt+n")
    await expect(page.get_by_role("heading", name="New chat")).to_be_visible()


async def begin(page: Page, text: str = ORDER, *, agent: str = "") -> None:
    """Say the first words of a new session, to the first agent or to this one."""
    if agent:
        await page.get_by_label("Agent", exact=True).select_option(agent)
    await say(page, text)
    await page.wait_for_url(IN_SESSION)


def messages(page: Page, role: str) -> Locator:
    """The texts of one role's messages, in order."""
    return page.locator(f".message[data-role={role}]:visible .text")


def announcements(page: Page) -> Locator:
    """The texts that a screen reader reads out, in order."""
    return page.locator("[aria-live=polite] p")


async def ended(page: Page) -> None:
    """Wait until nothing runs."""
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await expect(page.locator(".turn").last.locator(".facts")).to_contain_text("tokens")
