"""The first schema: sessions, messages, states, artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)
Json = sa.JSON().with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Create everything."""
    _sessions()
    _messages()
    _states()
    _artifacts()


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("pk", Key, sa.Identity(), primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("public_id", sa.Text, nullable=False),
        sa.Column("parent_pk", Key),
        sa.Column("state", Json, nullable=False),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        sa.Column("next_seq", Key, nullable=False, server_default="1"),
        sa.Column("total_tokens", Key, nullable=False, server_default="0"),
        sa.Column("message_count", Key, nullable=False, server_default="0"),
        sa.Column("epoch", Key, nullable=False, server_default="0"),
        sa.Column("owner", sa.Text),
        sa.Column("invocation_id", sa.Text, nullable=False, server_default=""),
        sa.Column("turn_seq", Key, nullable=False, server_default="1"),
        sa.Column("compacted_seq", Key),
        sa.Column("open_calls", Json),
        sa.Column("closed_calls", Json),
        sa.Column("created", Time, nullable=False),
        sa.Column("updated", Time, nullable=False),
        sa.Column("last_activity", Time, nullable=False),
        sa.UniqueConstraint("public_id"),
        sa.UniqueConstraint("tenant", "app_name", "user_id", "id"),
        postgresql_with={"fillfactor": "70"},
        sqlite_autoincrement=True,
    )
    op.create_index(
        "sessions_user_activity_ix",
        "sessions",
        ["tenant", "app_name", "user_id", "last_activity", "pk"],
    )
    op.create_index(
        "sessions_app_activity_ix", "sessions", ["tenant", "app_name", "last_activity", "pk"]
    )


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("seq", Key, nullable=False),
        sa.Column("cum_tokens", Key, nullable=False),
        sa.Column("created", Time, nullable=False),
        sa.Column("timestamp", sa.Double, nullable=False),
        sa.Column("undone_by", Key),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("tool_calls", Json),
        sa.Column("event", Json),
        sa.Column("changes", Json),
        sa.PrimaryKeyConstraint("session_pk", "seq"),
        sa.UniqueConstraint("session_pk", "event_id"),
    )
    live = sa.text("undone_by is null")
    op.create_index(
        "messages_window_ix",
        "messages",
        ["session_pk", "cum_tokens"],
        postgresql_where=live,
        sqlite_where=live,
    )
    changing = sa.text("changes is not null")
    op.create_index(
        "messages_changes_ix",
        "messages",
        ["session_pk", "seq"],
        postgresql_where=changing,
        sqlite_where=changing,
    )


def _states() -> None:
    op.create_table(
        "state_changes",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("seq", Key, nullable=False),
        sa.Column("undone_by", Key),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("delta", Json, nullable=False),
        sa.PrimaryKeyConstraint("session_pk", "seq"),
        sa.UniqueConstraint("session_pk", "event_id"),
    )
    op.create_table(
        "app_states",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", Json),
        sa.PrimaryKeyConstraint("tenant", "app_name", "key"),
    )
    op.create_table(
        "user_states",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", Json),
        sa.PrimaryKeyConstraint("tenant", "app_name", "user_id", "key"),
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("pk", Key, sa.Identity(), primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("app_name", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("mime_type", sa.Text),
        sa.Column("size", Key, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("call_id", sa.Text),
        sa.Column("part", Json, nullable=False),
        sa.Column("metadata", Json),
        sa.Column("created", Time, nullable=False),
        sa.UniqueConstraint(
            "tenant", "app_name", "user_id", "session_id", "kind", "name", "version"
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "artifact_chunks",
        sa.Column("artifact_pk", Key, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("artifact_pk", "number"),
    )
