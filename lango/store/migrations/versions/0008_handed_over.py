"""How often a turn was handed over by a worker that ended in order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
additive = True


def upgrade() -> None:
    """Add a column; older workers hand over without counting, as they always did."""
    op.add_column("turns", sa.Column("handed_over", sa.Integer, nullable=False, server_default="0"))
