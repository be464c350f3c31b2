"""The tool ledger: calls that were started, and their results, so that no finished one runs again.

Its rows belong to the root session, whose turn is the fence for its child sessions too.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

import sqlalchemy as sa

from lango.core.failpoints import failpoint
from lango.core.ids import MAX_ID_LENGTH, check_id, new_id
from lango.core.values import JsonObject, storable_json
from lango.errors import LedgerConflictError, StoreError
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.schema.tables import tool_ledger
from lango.store.turns import rows as turn_rows
from lango.store.turns.rows import Claim

RUN: Final = "run"
UNKNOWN: Final = "unknown"
CONFIRMED: Final = "#confirmed"
"""The ledger's suffix for the id of a call that a person has approved."""
AUTHORIZED: Final = "#authorized"
"""The ledger's suffix for a run of a call after a user gave a credential, before its number."""
_LISTED_CREDENTIALS: Final = 3
NODE: Final = "node:"
"""The prefix of the key of a Workflow's function, which is no tool call."""


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
    """What a tool returned in an earlier attempt, and its actions on its context."""

    result: Any
    actions: JsonObject


Verdict = Literal["run", "unknown"] | Finished
"""Run the tool; or it was started and its outcome is unknown; or use its stored result."""


class ToolLedger:
    """The tool calls of all turns. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def start(self, claim: Claim, run: ToolRun) -> Verdict:
        """Record a call before its tool runs, unless it ran before. Fenced if the turn is lost.

        Raises LedgerConflictError if the entry under its key is of another tool or has other
        arguments: its result is not that of this call.
        """
        check_id("invocation id", run.invocation_id)
        check_id("call key", run.call_key)
        token = new_id("run")  # a retry recognises its own entry by it

        names = _names(claim, run)

        async def once(transaction: Transaction) -> Verdict:
            claim_row = await turn_rows.hold(transaction, claim)
            row = await transaction.one(_RUN, **names)
            if row is not None:
                _check_same(row, run)
            if row is None:
                await transaction.all(_ENTER, **_entry(claim, run, token), started=claim_row.clock)
            elif row.status == "finished":
                return Finished(row.result, row.actions or {})
            elif row.token != token and not run.idempotent:
                return UNKNOWN
            else:
                await transaction.all(_AGAIN, **names, epoch=claim.epoch, token=token)
            return RUN

        failpoint("ledger.start.before")
        verdict = await self.database.transact(once, session=claim.turn.session)
        failpoint("ledger.start.after")
        return verdict

    async def finish(
        self, claim: Claim, run: ToolRun, result: Any, actions: JsonObject | None = None
    ) -> None:
        """Record the result of a started call; the first one stays. Fenced if the turn is lost."""
        values = {"result": storable_json(result), "actions": storable_json(actions or {})}

        names = _names(claim, run)

        async def once(transaction: Transaction) -> None:
            claim_row = await turn_rows.hold(transaction, claim)
            outcome = {**values, "status": "finished", "finished": claim_row.clock}
            if await transaction.one(_FINISH, **names, **outcome) is not None:
                return
            if await transaction.one(_RUN, **names) is None:
                raise StoreError(f"The call {run.call_key} of {run.tool} was never started.")

        failpoint("ledger.finish.before")
        await self.database.transact(once, session=claim.turn.session)
        failpoint("ledger.finish.after")

    async def results(self, claim: Claim, invocation_id: str) -> dict[str, Finished]:
        """The results of an invocation's tool calls, by call key."""
        parameters = {"of_session": claim.turn.session_pk, "invocation": invocation_id}
        rows = await self.database.read(_FINISHED, **parameters)
        return {row.call_key: Finished(row.result, row.actions or {}) for row in rows}


_OF_INVOCATION: Final = sa.and_(
    tool_ledger.c.session_pk == sa.bindparam("of_session"),
    tool_ledger.c.invocation_id == sa.bindparam("invocation"),
)
_THIS_RUN: Final = sa.and_(_OF_INVOCATION, tool_ledger.c.call_key == sa.bindparam("key"))
_RUN: Final = Prepared(sa.select(tool_ledger).where(_THIS_RUN))
_ENTER: Final = Prepared(sa.insert(tool_ledger))
_AGAIN: Final = Prepared(sa.update(tool_ledger).where(_THIS_RUN))
_FINISH: Final = Prepared(
    sa.update(tool_ledger)
    .where(_THIS_RUN, tool_ledger.c.status == sa.literal_column("'started'"))
    .returning(tool_ledger.c.call_key)
)
_IS_FINISHED: Final = sa.and_(
    _OF_INVOCATION, tool_ledger.c.status == sa.literal_column("'finished'")
)
_FINISHED: Final = Prepared(sa.select(tool_ledger).where(_IS_FINISHED))


def _check_same(row: Row, run: ToolRun) -> None:
    if row.tool != run.tool or row.args != storable_json(run.args):
        raise LedgerConflictError(
            f"The call {run.call_key} of {run.tool} has the key of another call, of {row.tool}."
        )


def bounded_key(text: str) -> str:
    """A key of at most MAX_ID_LENGTH characters: a longer text ends in a hash of the whole."""
    if len(text) <= MAX_ID_LENGTH:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[: MAX_ID_LENGTH - len(digest) - 1]}~{digest}"


def key_of_call(call_id: str, *, confirmed: bool = False, credentials: int = 0) -> str:
    """The key of a tool call; a run that a person has answered has another key than the one before.

    `credentials` is how many answers with credentials the run follows.
    """
    authorized = f"{AUTHORIZED}{credentials}" if credentials else ""
    return bounded_key(f"{call_id}{CONFIRMED if confirmed else ''}{authorized}")


def keys_of_call(call_id: str) -> list[str]:
    """The keys that runs of a call usually have."""
    return [
        key_of_call(call_id, confirmed=confirmed, credentials=credentials)
        for confirmed in (False, True)
        for credentials in range(_LISTED_CREDENTIALS + 1)
    ]


def call_of_key(call_key: str) -> str:
    """The id of the call that a key was made of."""
    return call_key.partition(AUTHORIZED)[0].removesuffix(CONFIRMED)


def _names(claim: Claim, run: ToolRun) -> JsonObject:
    """The bind parameters of a statement about one run."""
    return {
        "of_session": claim.turn.session_pk,
        "invocation": run.invocation_id,
        "key": run.call_key,
    }


def _entry(claim: Claim, run: ToolRun, token: str) -> JsonObject:
    """A new row, without its time."""
    return {
        "session_pk": claim.turn.session_pk,
        "invocation_id": run.invocation_id,
        "call_key": run.call_key,
        "tool": run.tool,
        "args": storable_json(run.args),
        "status": "started",
        "epoch": claim.epoch,
        "token": token,
    }
