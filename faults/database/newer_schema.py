"""The tables of newer lango versions: migrations after those of today."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lango.store.schema.revisions import OURS, Revisions

_COLUMNS: Final = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, additive = {revision!r}, {before!r}, {additive}

def upgrade():
    for table in ("sessions", "messages", "turns", "turn_events", "tool_ledger", "workers"):
        op.add_column(table, sa.Column("added_" + revision, sa.Text))
"""
# An aborted build leaves an invalid index, which blocks the next build.
_INDEX: Final = """
from contextlib import nullcontext

from alembic import op

revision, down_revision, additive = {revision!r}, {before!r}, {additive}

def upgrade():
    name = "messages_" + revision + "_ix"
    here = op.get_context()
    # SQLite builds it in the transaction of the upgrade.
    with nullcontext() if here.dialect.name == "sqlite" else here.autocommit_block():
        op.drop_index(name, "messages", if_exists=True, postgresql_concurrently=True)
        op.create_index(name, "messages", ["created", "seq"], postgresql_concurrently=True)
"""


def newer(folder: Path, versions: int = 1, *, additive: bool = True) -> Revisions:
    """Write the migrations of the next versions: each adds columns, and then an index."""
    folder.mkdir(exist_ok=True)
    before = OURS.head
    for number in range(2 * versions):
        revision = f"9{number:03}"
        text = (_COLUMNS, _INDEX)[number % 2]
        script = text.format(revision=revision, before=before, additive=additive)
        (folder / f"{revision}_newer.py").write_text(script)
        before = revision
    return Revisions(folder)
