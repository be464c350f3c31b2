"""The causes of failures, beside the turn, for its operator."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
additive = True

Json = sa.JSON().with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Add a column that may be empty."""
    op.add_column("turns", sa.Column("causes", Json))
