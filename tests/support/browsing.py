"""The system's Chromium, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

PATIENCE = 60.0  # seconds: a browser beside many other processes needs a while
_PROGRAM = os.environ.get("LANGO_TEST_CHROMIUM", "chromium")
_ARGUMENTS = [
    "--no-sandbox",  # a container's root cannot have one; and it visits loopback alone
    "--disable-lcd-text",  # pictures without coloured edges are half as large
]


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    """A browser without a window; where there is none, the test says so, and fails in CI."""
    program = shutil.which(_PROGRAM)
    if program is None:
        reason = f"There is no {_PROGRAM}: install it, or say where one is by LANGO_TEST_CHROMIUM."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE * 1_000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


def complaints_of(page: Page) -> list[str]:
    """What goes wrong on a page from now on: errors, warnings, what its policy refused."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    return complaints
