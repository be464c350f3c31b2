"""The model calls of a claimed turn: each gets a row before the model is called.

The row's usage is settled later, and without the fence (`ModelCallStore`): a worker that has lost
its turn has still paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from lango.core.context.model_calls import ModelCall
from lango.core.failpoints import failpoint
from lango.errors import Fenced
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.db.retry import is_duplicate
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.model_calls import row_of
from lango.store.schema.tables import model_calls, tool_ledger, turns
from lango.store.turns import rows as turn_rows
from lango.store.turns import usage as turn_usage
from lango.store.turns.ledger import NODE
from lango.store.turns.rows import Claim
from lango.store.turns.usage import EarlierUsage

_NEW: Final = "new_"
_COLUMNS: Final = [column for column in model_calls.c if column.name != "pk"]
_ROUNDING: Final = 0.001  # seconds: a time as a float is rounded
_ENTER: Final = Prepared(
    # Locks the turn's row only against deletion: a delete waits, and then deletes this row too.
    sa.insert(model_calls)
    .from_select(
        [column.name for column in _COLUMNS],
        sa.select(*(sa.bindparam(f"{_NEW}{column.name}", type_=column.type) for column in _COLUMNS))
        .select_from(turns)
        .where(turn_rows.IS_CLAIMED)
        .with_for_update(read=True, key_share=True),
    )
    .returning(model_calls.c.pk)
)
_TOOLS: Final = Prepared(
    sa.select(tool_ledger.c.invocation_id, tool_ledger.c.call_key, tool_ledger.c.started).where(
        tool_ledger.c.session_pk == sa.bindparam("of_session"),
        sa.or_(
            tool_ledger.c.invocation_id == sa.bindparam("invocation"),
            tool_ledger.c.invocation_id.startswith(sa.bindparam("inner")),
        ),
    )
)


async def enter_call(database: Database, claim: Claim, record: ModelCall) -> None:
    """Write the row of a call that is about to be made; Fenced if the turn is lost."""
    turn = claim.turn
    row = row_of(turn.session.tenant, record, turn.session_pk)
    values: dict[str, Any] = {f"{_NEW}{name}": value for name, value in row.items()}
    parameters = {"of_session": turn.session_pk, "of_number": turn.number, "claim": claim.id}

    async def once() -> bool:
        try:
            return bool(await database.write(_ENTER, **parameters, **values))
        except Exception as error:
            if not is_duplicate(error):  # the reply to an earlier try was lost
                raise
            return True

    failpoint("call.enter.before")
    if not await once():
        raise Fenced
    failpoint("call.enter.after")


async def resume_calls(database: Database, claim: Claim) -> EarlierUsage:
    """Mark the unfinished calls of earlier attempts as cut off; returns what the attempts spent.

    Fenced if the turn is lost.
    """
    turn = claim.turn

    async def once(transaction: Transaction) -> EarlierUsage:
        claim_row = await turn_rows.hold(transaction, claim)
        turn_key = turn.session_pk, turn.number
        await turn_usage.mark_cut_off(transaction, *turn_key, claim_row.clock)
        usage = await turn_usage.spent_on_models(transaction, *turn_key)
        tools = await transaction.all(
            _TOOLS,
            of_session=turn.session_pk,
            invocation=turn.invocation_id,
            inner=f"{turn.invocation_id}/",
        )
        return replace(usage, tools=frozenset(_tool_calls(tools, turn.started)))

    return await database.transact(once)


def _tool_calls(rows: Sequence[Row], began: float | None) -> Iterator[tuple[str, str]]:
    """The tool calls since the turn began: its invocation may have had earlier turns."""
    since = (began or 0.0) - _ROUNDING
    for row in rows:
        if seconds(row.started) >= since and not row.call_key.startswith(NODE):
            yield row.invocation_id, row.call_key
