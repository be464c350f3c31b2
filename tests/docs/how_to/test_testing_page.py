"""The page on testing with models, followed in an empty folder with only what it installs."""

from __future__ import annotations

from pathlib import Path

from tests.docs.environments import free_address, newcomer
from tests.docs.pages import DOCS
from tests.docs.shell import Shell

PAGE = DOCS / "how-to/testing-models.md"


async def test_it_can_be_followed(dist: Path, tmp_path: Path) -> None:
    async with Shell(tmp_path, newcomer(dist, free_address())) as shell:
        await shell.run("python3 -m venv .venv && . .venv/bin/activate")
        await shell.run('pip() { uv pip "$@"; }')  # uv has the packages in its cache
        await shell.follow(PAGE)
        await shell.run(f'test "$(command -v pytest)" = {tmp_path}/.venv/bin/pytest')
