"""The restore drill: a dump of a busy database, restored by the page's commands."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.store.hold import read_hold
from tests.docs.environments import free_address, reader
from tests.docs.pages import DOCS, blocks
from tests.docs.shell import Shell
from tests.store.rows import beside
from tests.support.databases import direct, on_server, server_url, temporary_postgres

PAGE = DOCS / "how-to/backups.md"
BACKUP, RESTORE, LOOK, RELEASE = blocks(PAGE, "bash")
CANCEL = blocks(PAGE, "sh")[0]
SHOWN_TURN = "turn_01a1f08ba8ef715da728ea860b66061f"
SHOWN_NAME = "lango_restored"
ACKNOWLEDGED = 20
PATIENCE = 120.0


@asynccontextmanager
async def restored_name() -> AsyncGenerator[str]:
    """The name of a database that the page makes, dropped at the end."""
    name = f"lango_{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        await on_server(direct(server_url()), f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def keep_submitting(process: TurnProcess, acknowledged: list[str]) -> None:
    """Submit one turn after the other, each with a tool call, and wait for its end."""
    while True:
        number = len(acknowledged)
        message = f'call mark {{"name": "t{number}"}}'
        acknowledged.append(await process.say(message, session=f"s{number % 5}"))
        await process.turns.wait(acknowledged[-1])


async def states(url: str) -> dict[str, str]:
    async with beside(url) as connection:
        rows = await connection.execute(sa.text("select id, state from turns"))
        return {row.id: row.state for row in rows}


async def until_logged(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(PATIENCE):
        while text not in caplog.text:  # noqa: ASYNC110 - a log line is no event
            await asyncio.sleep(0.02)


async def dumped(shell: Shell, workspace: Workspace) -> tuple[list[str], list[str]]:
    """Take a dump while turns run: the turns acknowledged before, and three in known states."""
    async with turn_process(workspace) as process, process.worker():
        runs = await process.say('call hold {"name": "go"}', session="busy")
        queued = await process.say('call mark {"name": "later"}', session="busy")
        waits = await process.say('call pay {"amount": 1}', session="asks")
        await process.turns.wait(waits)
        await workspace.effects.wait(lambda words: "held go" in words)
        acknowledged = [runs, queued, waits]
        submitting = asyncio.create_task(keep_submitting(process, acknowledged))
        await workspace.effects.wait(lambda words: len(words) > ACKNOWLEDGED)
        before = list(acknowledged)
        await shell.run(BACKUP.text)
        submitting.cancel()
        with suppress(asyncio.CancelledError):
            await submitting
        (workspace.folder / "go").touch()
    return before, [runs, queued, waits]


async def test_the_restore_drill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tenant: str
) -> None:
    caplog.set_level(logging.WARNING, "lango")
    folders = [tmp_path / name for name in ("original", "copy")]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "go").touch()  # in the copy, nothing stops the tool that the turn was in
    async with temporary_postgres() as url, restored_name() as name:
        original = direct(url)
        copy = make_url(original).set(database=name).render_as_string(hide_password=False)
        urls = {"DATABASE_URL": original, "RESTORED_URL": copy}
        async with Shell(tmp_path, reader(free_address()) | urls) as shell:
            before, (runs, queued, waits) = await dumped(shell, Workspace(url, tenant, folders[0]))
            await shell.run(RESTORE.text.replace(SHOWN_NAME, name))
            found = await states(copy)
            assert set(before) <= found.keys()
            assert [found[turn] for turn in (runs, queued, waits)] == [
                *("running", "queued", "input_required")
            ]
            workspace = Workspace(copy, tenant, folders[1])
            async with turn_process(workspace, dead_after=1.5) as there:
                worker = there.worker()
                starting = asyncio.create_task(worker.start_when_released())
                await until_logged("This database was restored from a dump", caplog)
                await shell.run(LOOK.text)
                assert {runs, queued} <= set(shell.heard.split())
                await shell.run(CANCEL.text.replace(SHOWN_TURN, runs))
                assert (workspace.effects.words(), starting.done()) == ([], False)
                assert await states(copy) == found
                await shell.run(RELEASE.text)
                await starting
                ended = {turn: (await there.turns.wait(turn)).state for turn in before}
                assert ended.pop(runs) == "cancelled"
                assert ended.pop(waits) == "input_required"
                assert set(ended.values()) == {"completed"}
                assert "mark later" in workspace.effects.words()
                assert not [words for words in workspace.effects.words() if words.endswith(" go")]
                assert await read_hold(there.store.database) is None
                await worker.stop(0)
