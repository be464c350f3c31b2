"""Turns: the queue, the log of events, the ledger of tools, and the workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)
Json = sa.JSON().with_variant(sa.Text, "sqlite")


def upgrade() -> None:
    """Add four tables; nothing that is there is touched."""
    _turns()
    _turn_indexes()
    _turn_events()
    _tool_ledger()
    _workers()


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("number", Key, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("app", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("input", Json, nullable=False),
        sa.Column("options", Json, nullable=False),
        sa.Column("input_hash", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("run_at", Time),
        sa.Column("place", Key),
        sa.Column("ready", Time),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("epoch", Key, nullable=False, server_default="0"),
        sa.Column("worker", sa.Text),
        sa.Column("claim_id", sa.Text),
        sa.Column("fingerprint", sa.Text, nullable=False, server_default=""),
        sa.Column("ran_under", sa.Text, nullable=False, server_default=""),
        sa.Column("time_limit", sa.Double, nullable=False),
        sa.Column("deadline", Time),
        sa.Column("answers", sa.Text),
        sa.Column("waits_for", Json),
        sa.Column("usage", Json),
        sa.Column("error", Json),
        sa.Column("last_event", Key, nullable=False, server_default="0"),
        sa.Column("trimmed", Time),
        sa.Column("created", Time, nullable=False),
        sa.Column("started", Time),
        sa.Column("ended", Time),
        sa.PrimaryKeyConstraint("session_pk", "number"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("session_pk", "idempotency_key"),
        postgresql_with={"fillfactor": "70"},
    )


def _partial(name: str, condition: str, *columns: str, unique: bool = False) -> None:
    where = sa.text(condition)
    op.create_index(
        name, "turns", list(columns), unique=unique, postgresql_where=where, sqlite_where=where
    )


def _turn_indexes() -> None:
    _partial("turns_running_ix", "state = 'running'", "session_pk", unique=True)
    _partial("turns_worker_ix", "state = 'running'", "worker")
    _partial("turns_queue_ix", "state = 'queued'", "session_pk", "place", unique=True)
    _partial("turns_ready_ix", "ready is not null", "app", "ready", "session_pk")
    _partial("turns_due_ix", "state = 'scheduled'", "run_at")
    answered = ("session_pk", "invocation_id", "answers")
    _partial("turns_answers_ix", "answers is not null", *answered, unique=True)
    _partial("turns_waits_ix", "waits_for is not null", "session_pk", "invocation_id")
    _partial("turns_log_ix", "ended is not null and trimmed is null", "ended")


def _turn_events() -> None:
    op.create_table(
        "turn_events",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("turn", Key, nullable=False),
        sa.Column("number", Key, nullable=False),
        sa.Column("epoch", Key, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("batch", sa.Text),
        sa.Column("created", Time, nullable=False),
        sa.PrimaryKeyConstraint("session_pk", "turn", "number"),
    )
    batches = sa.text("batch is not null")
    op.create_index(
        "turn_events_batch_ix",
        "turn_events",
        ["session_pk", "turn", "batch"],
        unique=True,
        postgresql_where=batches,
        sqlite_where=batches,
    )


def _tool_ledger() -> None:
    op.create_table(
        "tool_ledger",
        sa.Column("session_pk", Key, nullable=False),
        sa.Column("invocation_id", sa.Text, nullable=False),
        sa.Column("call_key", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("args", Json, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("result", Json),
        sa.Column("actions", Json),
        sa.Column("epoch", Key, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("started", Time, nullable=False),
        sa.Column("finished", Time),
        sa.PrimaryKeyConstraint("session_pk", "invocation_id", "call_key"),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("apps", Json, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started", Time, nullable=False),
        sa.Column("beat", Time, nullable=False),
    )
