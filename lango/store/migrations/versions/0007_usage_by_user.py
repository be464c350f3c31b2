"""Where to find what a user's model calls took."""

from __future__ import annotations

from contextlib import nullcontext

from alembic import op

revision = "0007"
down_revision = "0006"
additive = True

_NAME = "model_calls_user_ix"


def upgrade() -> None:
    """Add an index, while others go on writing; one that an interrupted upgrade left is dropped."""
    here = op.get_context()
    # SQLite knows no other way than the transaction that all of the upgrade is in.
    is_sqlite = here.dialect.name == "sqlite"
    with nullcontext() if is_sqlite else here.autocommit_block():
        op.drop_index(_NAME, "model_calls", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            _NAME, "model_calls", ["tenant", "user_id", "started"], postgresql_concurrently=True
        )
