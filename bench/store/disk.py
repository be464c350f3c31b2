"""Bytes on disk per message, indexes included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.events import APPENDED_BYTES
from bench.pg import connect
from bench.report import Table
from bench.rounds import Interval
from bench.store.contenders import Fill
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from bench.store.contenders import Contender

PLAIN: Final = Target("disk of a plain user message, × bare", 1.35)
USAGE: Final = Target("disk of a model message with usage, × ADK's row", 1.0)

_SESSIONS: Final = 100
_MESSAGES: Final = 250


async def _bytes_per_row(contender: Contender, url: str, kind: Literal["user", "model"]) -> float:
    """The bytes per row of one kind, in a table with no other rows."""
    table = contender.message_table
    connection = await connect(url)
    try:
        await connection.execute(f"truncate {table}")
        await contender.sessions(_SESSIONS, Fill(_MESSAGES, APPENDED_BYTES, kind))
        await connection.execute(f"vacuum analyze {table}")
        size = await connection.fetchval(f"select pg_total_relation_size('{table}')")
        rows = await connection.fetchval(f"select count(*) from {table}")  # noqa: S608
        return int(size) / int(rows)
    finally:
        await connection.close()


async def per_message(contenders: Sequence[Contender], url: str) -> Result:
    """A plain user message beside bare, a model message with usage beside ADK's row."""
    bare, adk, *_ = contenders
    ours = contenders[-1]
    kinds: tuple[Literal["user", "model"], ...] = ("user", "model")
    sizes = {(c.name, k): await _bytes_per_row(c, url, k) for c in contenders for k in kinds}
    table = Table(
        f"Bytes on disk per {APPENDED_BYTES}-byte message "
        f"({_SESSIONS * _MESSAGES:,} rows, with indexes, after vacuum)",
        ("store", "plain user message", "× bare", "model message with usage", "× ADK"),
    )
    for c in contenders:
        plain, usage = sizes[c.name, "user"], sizes[c.name, "model"]
        table.add(
            c.name,
            f"{plain:,.0f}",
            f"{plain / sizes[bare.name, 'user']:.2f}",
            f"{usage:,.0f}",
            f"{usage / sizes[adk.name, 'model']:.2f}",
        )
    to_bare = sizes[ours.name, "user"] / sizes[bare.name, "user"]
    to_adk = sizes[ours.name, "model"] / sizes[adk.name, "model"]
    return Result(
        [table],
        [Finding(PLAIN, Interval.exact(to_bare)), Finding(USAGE, Interval.exact(to_adk))],
    )
