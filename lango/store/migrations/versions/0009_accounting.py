"""What is known of the workers that a turn has lost, and of closes that failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
additive = True


def upgrade() -> None:
    """Add columns; older workers count every loss alike, as they always did."""
    for name in ("lost_alone", "close_failures"):
        op.add_column("turns", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column(
        "turns", sa.Column("closing", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("workers", sa.Column("blamed", sa.Text))
