"""What the model calls of a turn used, over all its attempts and all agents that its tools ran."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from lango.core.context.model_calls import CallOutcome
from lango.core.messages.streams import Usage
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction, only
from lango.store.schema.tables import model_calls

STARTED: Final[CallOutcome] = "started"
CUT_OFF: Final[CallOutcome] = "cut_off"


@dataclass(frozen=True, slots=True)
class EarlierUsage:
    """What the earlier attempts of a turn spent, for its limits."""

    model_calls: int = 0
    tokens: int = 0  # as the models reported them
    cost: float = 0.0  # US dollars, of what has a price
    cut_off: tuple[tuple[str, int], ...] = ()
    """For each call whose usage is not known: its model and the estimate of its prompt's tokens."""
    tools: frozenset[tuple[str, str]] = frozenset()  # invocation id and call key of each tool call


NOTHING_SPENT: Final = EarlierUsage()

_OF_TURN: Final = sa.and_(
    model_calls.c.session_pk == sa.bindparam("of_session"),
    model_calls.c.turn_number == sa.bindparam("of_turn"),
)
_IS_STARTED: Final = model_calls.c.outcome == sa.literal_column(f"'{STARTED}'")


def _sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.coalesce(sa.func.sum(column), sa.literal_column("0"))


TOKEN_SUMS: Final = {
    "input": _sum(model_calls.c.input_tokens),
    "output": _sum(model_calls.c.output_tokens),
    "cached": _sum(model_calls.c.cached_tokens),
    "reasoning": _sum(model_calls.c.reasoning_tokens),
}
"""The tokens of some calls, as reported; 0 for calls without a report."""
_USED: Final = Prepared(
    sa.select(
        sa.func.count().label("attempts"),
        _sum(sa.cast(_IS_STARTED, sa.Integer)).label("started"),
        *(tokens.label(name) for name, tokens in TOKEN_SUMS.items()),
    ).where(_OF_TURN)
)
_CUT_OFF: Final = Prepared(
    sa.update(model_calls)
    .where(_OF_TURN, _IS_STARTED)
    .values(outcome=sa.literal_column(f"'{CUT_OFF}'"))
)
_CALLS: Final = Prepared(
    sa.select(
        *(model_calls.c.call_id, model_calls.c.provider, model_calls.c.model),
        *(model_calls.c.outcome, model_calls.c.estimated_tokens, model_calls.c.price),
        *(model_calls.c.input_tokens, model_calls.c.output_tokens),
    ).where(_OF_TURN, model_calls.c.kind == sa.literal_column("'answer'"))
)


async def mark_cut_off(
    transaction: Transaction, session_pk: int, number: int, at: datetime
) -> None:
    """Mark the unfinished calls of a turn as cut off; their worker may still settle them."""
    await transaction.all(_CUT_OFF, of_session=session_pk, of_turn=number, ended=at)


async def close_calls(
    transaction: Transaction, session_pk: int, number: int, at: datetime
) -> Usage | None:
    """What the calls of a turn that ends have used; None if there is no record of any.

    Marks an unfinished call as cut off.
    """
    sums = await transaction.one(_USED, of_session=session_pk, of_turn=number)
    if sums is not None and sums.started:
        await mark_cut_off(transaction, session_pk, number, at)
    return _usage(sums)


async def read_usage(database: Database, session_pk: int, number: int) -> Usage | None:
    """What the calls of a turn have used so far; None if there is no record of any."""
    return _usage(only(await database.read(_USED, of_session=session_pk, of_turn=number)))


def _usage(sums: Row | None) -> Usage | None:
    if sums is None or not sums.attempts:
        return None
    return Usage(int(sums.input), int(sums.output), int(sums.cached), int(sums.reasoning))


async def spent_on_models(transaction: Transaction, session_pk: int, number: int) -> EarlierUsage:
    """What the calls of a turn have used so far, as its limits count it: without summaries."""
    rows = await transaction.all(_CALLS, of_session=session_pk, of_turn=number)
    return EarlierUsage(
        model_calls=len({row.call_id for row in rows}),
        tokens=sum((row.input_tokens or 0) + (row.output_tokens or 0) for row in rows),
        cost=sum(row.price or 0.0 for row in rows),
        cut_off=tuple(
            (f"{row.provider}:{row.model}", row.estimated_tokens)
            for row in rows
            if row.outcome == CUT_OFF and row.input_tokens is None
        ),
    )
