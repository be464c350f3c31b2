"""Imports all modules of a worker process, and runs one turn; the fork server loads this once."""

import asyncio
import os
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

import aiosqlite
import asyncpg
from sqlalchemy.dialects.postgresql import asyncpg as postgresql_dialect
from sqlalchemy.dialects.sqlite import aiosqlite as sqlite_dialect

from faults.carriers.choose import chosen_engine_name, on_database_alone
from faults.turns.workspace import Workspace, turn_process
from lango.adk.models.adapter import ModelAdapter
from lango.turns.engine.choose import DATABASE
from tests.support.databases import temporary_sqlite

DRIVERS = [aiosqlite, asyncpg, postgresql_dialect, sqlite_dialect]


async def _warm() -> None:
    """ADK imports lazily: a turn with a tool loads the rest."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            temporary_sqlite() as url,
            turn_process(Workspace(url, "app", Path(folder))) as process,
            process.worker(),
        ):
            await process.turns.wait(await process.say('call step {"name": "a"}'))
    # The SDK takes a second to import, and a worker that is killed is replaced by a new one.
    await ModelAdapter("vllm:warm", base_url="http://127.0.0.1:9/v1", api_key="none").warm_up()


# Its own process group: when the shell that started the tests ends, the kernel continues the frozen
# processes of its group.
os.setpgid(0, 0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # Temporal's client starts threads, which a fork does not copy: a process that has connected can
    # start none that connects. So this one only imports it.
    with on_database_alone():
        asyncio.run(_warm())
    if chosen_engine_name() != DATABASE:
        import_module("lango.turns.engine.temporal")
