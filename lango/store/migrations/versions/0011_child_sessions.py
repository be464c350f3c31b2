"""Where to find the child sessions of a session."""

from __future__ import annotations

from contextlib import nullcontext

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
additive = True

_NAME = "sessions_parent_ix"


def upgrade() -> None:
    """Add an index, while others go on writing; one that an interrupted upgrade left is dropped."""
    here = op.get_context()
    is_sqlite = here.dialect.name == "sqlite"
    is_child = sa.text("parent_pk is not null")
    with nullcontext() if is_sqlite else here.autocommit_block():
        op.drop_index(_NAME, "sessions", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            _NAME,
            "sessions",
            ["tenant", "parent_pk"],
            postgresql_concurrently=True,
            postgresql_where=is_child,
            sqlite_where=is_child,
        )
