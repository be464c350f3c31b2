"""API keys, and which of them a turn was handed in with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

Time = sa.DateTime(timezone=True)
Json = sa.JSON().with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Add a table, and a column that is empty for every turn there is."""
    _api_keys()
    op.add_column("turns", sa.Column("key_id", sa.Text))
    with_key = sa.text("key_id is not null")
    op.create_index(
        "turns_key_ix",
        "turns",
        ["key_id", "ended"],
        postgresql_where=with_key,
        sqlite_where=with_key,
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", Json, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("limits", Json),
        sa.Column("created", Time, nullable=False),
        sa.Column("expires", Time),
        sa.Column("revoked", Time),
        sa.Column("replaced_by", sa.Text),
        sa.Column("last_used", Time),
        sa.Column("deleted_cost", sa.Double, nullable=False, server_default="0"),
        sa.Column("deleted_day", sa.Date),
    )
    op.create_index("api_keys_tenant_ix", "api_keys", ["tenant", "created", "id"])
