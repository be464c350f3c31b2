"""Everything the turns of the features import; the fork server reads this once."""

import asyncio
import warnings
from tempfile import TemporaryDirectory

import aiosqlite
import asyncpg
from sqlalchemy.dialects.postgresql import asyncpg as postgresql_dialect
from sqlalchemy.dialects.sqlite import aiosqlite as sqlite_dialect

from lango.adk.compat.contents import arrange, replace_arrange
from lango.testing.wires import WIRES, WireServer
from tests.adk.runner.parity.features import FEATURES
from tests.adk.runner.parity.services import InMemory, create, take
from tests.adk.runner.parity.steps import Notes
from tests.adk.runner.regressions.wire_talks import TalkConfig, say

DRIVERS = [aiosqlite, asyncpg, postgresql_dialect, sqlite_dialect]


async def _warm() -> None:
    """ADK and the vendors' SDKs import as they go: a turn of each kind brings in all of it."""
    for name in ("confirmation", "workflow"):
        services, notes = InMemory(), Notes()
        await create(services)
        await take(services, FEATURES[name], notes, *FEATURES[name].short[:2])
    with TemporaryDirectory() as folder:
        for wire in WIRES:
            async with WireServer(wire) as server:
                await say(
                    TalkConfig(wire, server.url, f"sqlite:///{folder}/warm.db", "warm-up"), "hello"
                )


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    asyncio.run(_warm())
replace_arrange(arrange)  # which the warm-up's durable agent has patched
