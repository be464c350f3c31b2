"""A server and a browser for all tests of a worker, and a page for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.console.stage import Stage, staged
from tests.support.browsing import PATIENCE, chromium, complaints_of


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Stage]:
    """A server with agents to talk to."""
    folder = tmp_path_factory.mktemp("stage")
    database = folder / "stage.db"
    database.write_bytes((sqlite_template / "lango.db").read_bytes())
    with staged(folder, f"sqlite:///{database}") as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser."""
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, stage: Stage) -> AsyncIterator[Page]:
    """The console, opened by the address that the server printed; nothing may go wrong in it."""
    stage.close_gate()
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE * 1_000)
    page = await context.new_page()
    complaints = complaints_of(page)
    await page.goto(stage.address)
    yield page
    stage.open_gate()
    await context.close()
    assert complaints == []
