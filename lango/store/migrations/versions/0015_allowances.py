"""What callers have used of their limits, counted by all servers in one place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
additive = False

_COSTS = """
insert into allowances (caller, deleted_cost, deleted_day)
select id, deleted_cost, deleted_day from api_keys where deleted_day is not null
"""


def upgrade() -> None:
    """Move the costs of deleted sessions from API keys to a table for any caller."""
    op.create_table(
        "allowances",
        sa.Column("caller", sa.Text, primary_key=True),
        sa.Column("next_request", sa.Double, nullable=False, server_default="0"),
        sa.Column("deleted_cost", sa.Double, nullable=False, server_default="0"),
        sa.Column("deleted_day", sa.Date),
    )
    op.execute(_COSTS)
    for column in ("deleted_cost", "deleted_day"):
        op.drop_column("api_keys", column)
    op.add_column("turns", sa.Column("cost_limit", sa.Double))
