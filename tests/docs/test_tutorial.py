"""The tutorial, executed as written with nothing but the wheel."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.docs.environments import ADDRESS, free_address, newcomer
from tests.docs.pages import DOCS, blocks
from tests.docs.shell import PATIENCE, Shell

PAGE = DOCS / "tutorial.md"
MOST_COMMANDS = 10
STOP = "kill $server $worker"


def test_it_has_few_commands() -> None:
    assert 0 < len(blocks(PAGE, "bash")) <= MOST_COMMANDS


async def test_it_can_be_followed(dist: Path, tmp_path: Path) -> None:
    address = free_address()
    async with Shell(tmp_path, newcomer(dist, address)) as shell:
        # The page's own words, but for who reads them: uv has the packages in its cache.
        await shell.run('pip() { uv pip "$@"; }')
        await shell.follow(PAGE, {ADDRESS: address})
        async with httpx.AsyncClient(follow_redirects=True, timeout=PATIENCE) as client:
            page = await client.get(f"http://{address}/console/")
        await shell.run(f'test "$(command -v lango)" = {tmp_path}/.venv/bin/lango')
        assert f"`{STOP}`" in PAGE.read_text("utf-8")
        await shell.run(f"{STOP} && wait $server $worker")
    _, stream = shell.heard.split("event: accepted")
    rolled = re.findall(r'"type":"tool\.finished".*?"result":\{"result":(\d+)\}', stream)
    assert len(rolled) == 1  # by the first worker; the second did not repeat it
    assert f'roll_dice gave {{\\"result\\":{rolled[0]}}}' in stream
    assert (page.status_code, "<title>lango" in page.text) == (200, True)
