"""The ledger of tools: what was started and what it gave, so that nothing finished runs again.

It is kept with the root session, whose turn holds the fence for its child sessions too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.failpoints import failpoint
from lango.core.ids import check_id, new_id
from lango.core.values import JsonObject, storable_json
from lango.errors import Fenced, StoreError
from lango.store import turn_rows
from lango.store.clock import now
from lango.store.database import Database
from lango.store.tables import tool_ledger
from lango.store.turn_rows import Claim

RUN: Final = "run"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call of a tool, as the ledger names it."""

    invocation_id: str
    call_key: str  # the call's id, or the path of a workflow's node
    tool: str
    args: JsonObject
    idempotent: bool = False  # may run again under the same key


@dataclass(frozen=True, slots=True)
class Finished:
    """What a tool gave in an earlier attempt, and what it did to its context."""

    result: Any
    actions: JsonObject


Verdict = Literal["run", "unknown"] | Finished
"""Run it; or it was begun and nobody knows how it went; or take what it gave."""


class ToolLedger:
    """The tool calls of all turns. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def start(self, claim: Claim, run: ToolRun) -> Verdict:
        """Enter a call before its tool runs, unless it ran before. Fenced if the turn is lost."""
        check_id("invocation id", run.invocation_id)
        check_id("call key", run.call_key)
        token = new_id("run")  # a retry recognises its own entry by it

        async def once(connection: AsyncConnection) -> Verdict:
            await _hold(connection, claim)
            mine = _is_run(claim, run)
            row = (await connection.execute(sa.select(tool_ledger).where(mine))).one_or_none()
            if row is None:
                await _enter(connection, claim, run, token)
            elif row.status == "finished":
                return Finished(row.result, row.actions or {})
            elif row.token != token and not run.idempotent:
                return UNKNOWN
            else:
                again = {"epoch": claim.epoch, "token": token}
                await connection.execute(sa.update(tool_ledger).where(mine).values(again))
            return RUN

        failpoint("ledger.start.before")
        verdict = await self.database.change(once)
        failpoint("ledger.start.after")
        return verdict

    async def finish(
        self, claim: Claim, run: ToolRun, result: Any, actions: JsonObject | None = None
    ) -> None:
        """Enter what a started call gave; what was entered first stays. Fenced as above."""
        values = {"result": storable_json(result), "actions": storable_json(actions or {})}

        async def once(connection: AsyncConnection) -> None:
            await _hold(connection, claim)
            mine = _is_run(claim, run)
            given = {**values, "status": "finished", "finished": now(connection)}
            begun = sa.update(tool_ledger).where(mine, tool_ledger.c.status == "started")
            if (await connection.execute(begun.values(given))).rowcount > 0:
                return
            if await connection.scalar(sa.select(tool_ledger.c.status).where(mine)) is None:
                raise StoreError(f"The call {run.call_key} of {run.tool} was never started.")

        failpoint("ledger.finish.before")
        await self.database.change(once)
        failpoint("ledger.finish.after")

    async def finished(self, claim: Claim, invocation_id: str) -> frozenset[str]:
        """The keys of an invocation's calls whose tools have given what they had to give."""

        async def once(connection: AsyncConnection) -> frozenset[str]:
            mine = _is_finished(claim, invocation_id)
            found = await connection.scalars(sa.select(tool_ledger.c.call_key).where(mine))
            return frozenset(found)

        return await self.database.look(once)

    async def results(self, claim: Claim, invocation_id: str) -> dict[str, Finished]:
        """What the tools of an invocation gave, by the keys of their calls."""

        async def once(connection: AsyncConnection) -> dict[str, Finished]:
            mine = _is_finished(claim, invocation_id)
            rows = await connection.execute(sa.select(tool_ledger).where(mine))
            return {row.call_key: Finished(row.result, row.actions or {}) for row in rows}

        return await self.database.look(once)


async def _hold(connection: AsyncConnection, claim: Claim) -> None:
    """Nobody takes the turn over until the transaction ends; Fenced if somebody has."""
    if await turn_rows.lock_claimed(connection, claim) is None:
        raise Fenced


def _is_run(claim: Claim, run: ToolRun) -> sa.ColumnElement[bool]:
    return sa.and_(
        tool_ledger.c.session_pk == claim.turn.session_pk,
        tool_ledger.c.invocation_id == run.invocation_id,
        tool_ledger.c.call_key == run.call_key,
    )


def _is_finished(claim: Claim, invocation_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        tool_ledger.c.session_pk == claim.turn.session_pk,
        tool_ledger.c.invocation_id == invocation_id,
        tool_ledger.c.status == "finished",
    )


async def _enter(connection: AsyncConnection, claim: Claim, run: ToolRun, token: str) -> None:
    await connection.execute(
        sa.insert(tool_ledger).values(
            session_pk=claim.turn.session_pk,
            invocation_id=run.invocation_id,
            call_key=run.call_key,
            tool=run.tool,
            args=storable_json(run.args),
            status="started",
            epoch=claim.epoch,
            token=token,
            started=now(connection),
        )
    )
