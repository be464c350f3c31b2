"""Which turn made a model call, so that its usage and limits count over all its attempts."""

from __future__ import annotations

from contextlib import nullcontext

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
additive = True

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TABLE = "model_calls"
_COLUMN = "turn_number"
_NAME = "model_calls_turn_ix"


def upgrade() -> None:
    """Add a column and its index, while others go on writing.

    What an interrupted upgrade left is kept, but for the index, which may not be whole.
    """
    here = op.get_context()
    is_sqlite = here.dialect.name == "sqlite"
    of_turn = sa.text(f"{_COLUMN} is not null")
    columns = sa.inspect(op.get_bind()).get_columns(_TABLE)
    if _COLUMN not in {column["name"] for column in columns}:
        op.add_column(_TABLE, sa.Column(_COLUMN, Key))
    with nullcontext() if is_sqlite else here.autocommit_block():
        op.drop_index(_NAME, _TABLE, if_exists=True, postgresql_concurrently=True)
        op.create_index(
            _NAME,
            _TABLE,
            ["session_pk", _COLUMN],
            postgresql_concurrently=True,
            postgresql_where=of_turn,
            sqlite_where=of_turn,
        )
