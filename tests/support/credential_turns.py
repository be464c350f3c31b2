"""Turns that wait for credentials, and the person who answers them."""

import asyncio
from typing import Any

import httpx
import sqlalchemy as sa

from faults.recovery.kill_shapes import TURN
from faults.turns.agents import PATIENCE
from faults.turns.workspace import TurnProcess
from lango.store.schema.tables import metadata
from lango.store.turns.rows import Turn

GO = f"{TURN} go"


async def ended(process: TurnProcess, turn: str) -> Turn:
    async with asyncio.timeout(240):
        return await process.turns.wait(turn)


async def asked(process: TurnProcess, message: str = GO, **options: Any) -> tuple[Turn, str]:
    """A turn that waits for a consent, and the consent's address."""
    turn = await ended(process, await process.say(message, **options))
    assert (turn.state, len(turn.waits_for)) == ("input_required", 1), turn.error
    (request,) = await process.turns.required_credentials(turn)
    return turn, request.auth_uri or ""


async def consent(auth_uri: str) -> tuple[str, str]:
    """Consent as a browser does: the state, and the address that the provider sends it to."""
    async with httpx.AsyncClient(timeout=PATIENCE) as browser:
        answer = await browser.get(auth_uri)
    url = httpx.URL(answer.headers["location"])
    return url.params["state"], str(url)


async def all_rows(process: TurnProcess) -> str:
    """Everything in the database, as one text."""

    async def once(connection: Any) -> str:
        found: list[str] = []
        for table in metadata.sorted_tables:
            rows = await connection.execute(sa.select(table))
            found += [f"{table.name}: {tuple(row)!r}" for row in rows]
        return "\n".join(found)

    return await process.store.database.read(once)
