"""Which sessions sent a prompt part, so that deleting the last of them deletes the text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
additive = True

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TABLE = "prompt_part_sessions"
_LINKS = """
insert into prompt_part_sessions (session_pk, tenant, hash)
select coalesce(session_pk, 0), tenant, system_hash from model_calls where system_hash is not null
union
select coalesce(session_pk, 0), tenant, tools_hash from model_calls where tools_hash is not null"""
_UNLINKED = """
delete from prompt_parts where not exists (
  select 1 from prompt_part_sessions l
  where l.tenant = prompt_parts.tenant and l.hash = prompt_parts.hash)"""


def upgrade() -> None:
    """Add a table, fill it from the records, and delete the texts that deleted sessions left."""
    op.create_table(
        _TABLE,
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("session_pk", "tenant", "hash", name=f"{_TABLE}_pk"),
    )
    op.execute(_LINKS)
    op.create_index(f"{_TABLE}_hash_ix", _TABLE, ["tenant", "hash"])
    op.execute(_UNLINKED)
