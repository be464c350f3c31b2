"""Whose turn it is: the tenant and the key in whose name a turn was handed in."""

from __future__ import annotations

from contextlib import nullcontext

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
additive = True

_TABLE = "turns"
_COLUMNS = ("tenant", "flow")
_OLD = "turns_ready_ix"
_NEW = "turns_flow_ix"
_OPEN = "turns_open_ix"
_FILL = """
update turns set
    tenant = (select sessions.tenant from sessions where sessions.pk = turns.session_pk),
    flow = (
        select sessions.tenant || '/' || coalesce(turns.key_id, '')
        from sessions where sessions.pk = turns.session_pk
    )
where turns.ended is null and turns.tenant = ''
"""


def upgrade() -> None:
    """Add columns and an index in place of another, while others go on writing.

    Turns that older code hands in have no tenant here and are served as if they were of one more.
    What an interrupted upgrade left is kept, but for the indexes, which may not be whole.
    """
    here = op.get_context()
    is_sqlite = here.dialect.name == "sqlite"
    known = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(_TABLE)}
    for name in _COLUMNS:
        if name not in known:
            op.add_column(_TABLE, sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.execute(_FILL)
    with nullcontext() if is_sqlite else here.autocommit_block():
        _index_anew(_NEW, "ready is not null", "app", "flow", "ready")
        _index_anew(_OPEN, "ended is null", "tenant")
        op.drop_index(_OLD, _TABLE, if_exists=True, postgresql_concurrently=True)


def _index_anew(name: str, condition: str, *columns: str) -> None:
    op.drop_index(name, _TABLE, if_exists=True, postgresql_concurrently=True)
    op.create_index(
        name,
        _TABLE,
        columns,
        postgresql_concurrently=True,
        postgresql_where=sa.text(condition),
        sqlite_where=sa.text(condition),
    )
