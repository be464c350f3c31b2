"""What the conversations of clients without sessions are known by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "conversations",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("turn", Key, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_pk", "turn", "hash", name="conversations_pk"),
    )
    op.create_index(
        "conversations_hash_ix",
        "conversations",
        ["tenant", "user_id", "app_name", "hash", "session_pk"],
    )
