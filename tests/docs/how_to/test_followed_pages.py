"""Pages that can be followed from their first block to the last are followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.environments import ADDRESS, free_address, reader
from tests.docs.pages import DOCS
from tests.docs.shell import Shell
from tests.store.transfer.adk_databases import empty_database

PAGES = [
    "adk-agents",
    "adk-database",
    "adk-front-ends",
    "approvals",
    "long-conversations",
    "long-running-tools",
    "memory",
]


@pytest.mark.parametrize("page", PAGES)
async def test_the_page_can_be_followed(page: str, tmp_path: Path) -> None:
    address = free_address()
    async with Shell(tmp_path, reader(address)) as shell:
        await shell.follow(DOCS / f"how-to/{page}.md", {ADDRESS: address})


async def test_the_page_on_postgresql_can_be_followed(tmp_path: Path) -> None:
    async with (
        empty_database("postgresql", tmp_path) as url,
        Shell(tmp_path, reader(free_address())) as shell,
    ):
        await shell.run("pip() { :; }")  # it is installed
        await shell.follow(
            DOCS / "how-to/postgresql.md", {"postgresql://lango@localhost/lango": url}
        )
