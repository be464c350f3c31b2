"""Which older versions of lango may work with the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lango.store.revisions import VERSION_TABLE

revision = "0006"
down_revision = "0005"
additive = True


def upgrade() -> None:
    """Add a column to the one row that says which schema this is."""
    op.add_column(VERSION_TABLE, sa.Column("oldest_code", sa.Text))
