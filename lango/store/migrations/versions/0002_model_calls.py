"""What each model call was sent, took and cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)
Json = sa.JSON().with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Add two tables; nothing that is there is touched."""
    _model_calls()
    _prompt_parts()


def _model_calls() -> None:
    op.create_table(
        "model_calls",
        sa.Column("pk", Key, sa.Identity(), primary_key=True),
        sa.Column("session_pk", Key),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("started", Time, nullable=False),
        sa.Column("first_byte", Time),
        sa.Column("ended", Time, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("estimated_tokens", Key, nullable=False),
        sa.Column("input_tokens", Key),
        sa.Column("cached_tokens", Key),
        sa.Column("output_tokens", Key),
        sa.Column("reasoning_tokens", Key),
        sa.Column("price", sa.Double),
        sa.Column("budget", Key, nullable=False),
        sa.Column("first_seq", Key),
        sa.Column("last_seq", Key),
        sa.Column("sent", sa.Integer, nullable=False),
        sa.Column("left_out", sa.Integer, nullable=False),
        sa.Column("shortened", Json),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("system_hash", sa.Text),
        sa.Column("tools_hash", sa.Text),
        sa.UniqueConstraint("call_id", "number"),
        sqlite_autoincrement=True,
    )
    op.create_index("model_calls_session_ix", "model_calls", ["session_pk", "pk"])
    op.create_index("model_calls_started_ix", "model_calls", ["tenant", "started"])
    elsewhere = sa.text("session_pk is null")
    op.create_index(
        "model_calls_elsewhere_ix",
        "model_calls",
        ["tenant", "app_name", "user_id", "session_id", "pk"],
        postgresql_where=elsewhere,
        sqlite_where=elsewhere,
    )


def _prompt_parts() -> None:
    op.create_table(
        "prompt_parts",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created", Time, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "hash"),
    )
