"""All tables of the first release.

The ids before 1001 belong to schemas that were never released; no migration leads from them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from lango.store.schema.revisions import VERSION_TABLE

revision = "1001"
down_revision = None
additive = False

# Written out, not imported: later changes of `schema/tables.py` must not change this migration.
metadata = sa.MetaData(
    naming_convention={
        "uq": "%(table_name)s_%(column_0_N_name)s_uq",
        "pk": "%(table_name)s_pk",
    }
)
Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)
Json = sa.JSON().with_variant(sa.Text, "sqlite")
Vector = postgresql.ARRAY(sa.REAL).with_variant(sa.Text, "sqlite")


_HERE = (
    "(select oid from pg_database where datname = current_database()) || '.' || "
    "'installation'::regclass::oid"
)


def upgrade() -> None:
    """Create the tables, and the column that names the oldest code that works with them."""
    connection = op.get_bind()
    metadata.create_all(connection, checkfirst=False)
    for statement in WORD_INDEX if connection.dialect.name == "sqlite" else ():
        op.execute(statement)
    identity = _HERE if connection.dialect.name == "postgresql" else "''"
    op.execute(f"insert into installation (pk, identity) select 1, {identity}")
    op.add_column(VERSION_TABLE, sa.Column("oldest_code", sa.Text))


def _partial(name: str, condition: str, *columns: str, unique: bool = False) -> sa.Index:
    predicate = sa.text(condition)
    return sa.Index(
        name, *columns, unique=unique, postgresql_where=predicate, sqlite_where=predicate
    )


sa.Table(
    "sessions",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("public_id", sa.Text, nullable=False, unique=True),
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
    sa.UniqueConstraint("tenant", "app_name", "user_id", "id"),
    sa.Index("sessions_user_activity_ix", "tenant", "app_name", "user_id", "last_activity", "pk"),
    sa.Index("sessions_app_activity_ix", "tenant", "app_name", "last_activity", "pk"),
    _partial("sessions_parent_ix", "parent_pk is not null", "tenant", "parent_pk"),
    postgresql_with={"fillfactor": "70"},
    sqlite_autoincrement=True,
)

sa.Table(
    "messages",
    metadata,
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
    _partial("messages_window_ix", "undone_by is null", "session_pk", "cum_tokens"),
    _partial("messages_changes_ix", "changes is not null", "session_pk", "seq"),
)

sa.Table(
    "state_changes",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("seq", Key, nullable=False),
    sa.Column("undone_by", Key),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("delta", Json, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "seq"),
    sa.UniqueConstraint("session_pk", "event_id"),
)

sa.Table(
    "app_states",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", Json),
    sa.PrimaryKeyConstraint("tenant", "app_name", "key"),
)

sa.Table(
    "user_states",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", Json),
    sa.PrimaryKeyConstraint("tenant", "app_name", "user_id", "key"),
)

sa.Table(
    "model_calls",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),
    sa.Column("session_pk", Key),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("turn", sa.Text, nullable=False),
    sa.Column("turn_number", Key),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
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
    sa.Index("model_calls_session_ix", "session_pk", "pk"),
    sa.Index("model_calls_started_ix", "tenant", "started"),
    _partial("model_calls_turn_ix", "turn_number is not null", "session_pk", "turn_number"),
    sa.Index("model_calls_user_ix", "tenant", "user_id", "started"),
    _partial(
        "model_calls_elsewhere_ix",
        "session_pk is null",
        "tenant",
        "app_name",
        "user_id",
        "session_id",
        "pk",
    ),
    sqlite_autoincrement=True,
)

sa.Table(
    "prompt_parts",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("tenant", "hash"),
)

sa.Table(
    "prompt_part_sessions",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "tenant", "hash"),
    sa.Index("prompt_part_sessions_hash_ix", "tenant", "hash"),
)

sa.Table(
    "artifacts",
    metadata,
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
    sa.Column("object_key", sa.Text),
    sa.Column("call_id", sa.Text),
    sa.Column("part", Json, nullable=False),
    sa.Column("metadata", Json),
    sa.Column("created", Time, nullable=False),
    sa.UniqueConstraint("tenant", "app_name", "user_id", "session_id", "kind", "name", "version"),
    _partial("artifacts_object_ix", "object_key is not null", "object_key"),
    sqlite_autoincrement=True,
)

sa.Table(
    "artifact_chunks",
    metadata,
    sa.Column("artifact_pk", Key, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("artifact_pk", "number"),
)

sa.Table("object_deletions", metadata, sa.Column("key", sa.Text, primary_key=True))

sa.Table(
    "object_store",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("swept", Time, nullable=False),
)

sa.Table(
    "turns",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("number", Key, nullable=False),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False, server_default=""),
    sa.Column("flow", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("input", Json, nullable=False),
    sa.Column("options", Json, nullable=False),
    sa.Column("input_hash", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text, nullable=False),
    sa.Column("run_at", Time),
    sa.Column("queue_position", Key),
    sa.Column("ready", Time),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("handed_over", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lost_alone", sa.Integer, nullable=False, server_default="0"),
    sa.Column("close_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("closing", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("epoch", Key, nullable=False, server_default="0"),
    sa.Column("worker", sa.Text),
    sa.Column("claim_id", sa.Text),
    sa.Column("fingerprint", sa.Text, nullable=False, server_default=""),
    sa.Column("ran_under", sa.Text, nullable=False, server_default=""),
    sa.Column("time_limit", sa.Double, nullable=False),
    sa.Column("deadline", Time),
    sa.Column("answers", sa.Text),
    sa.Column("key_id", sa.Text),
    sa.Column("cost_limit", sa.Double),
    sa.Column("traceparent", sa.Text),
    sa.Column("waits_for", Json),
    sa.Column("usage", Json),
    sa.Column("error", Json),
    sa.Column("causes", Json),
    sa.Column("last_event", Key, nullable=False, server_default="0"),
    sa.Column("trimmed", Time),
    sa.Column("created", Time, nullable=False),
    sa.Column("started", Time),
    sa.Column("ended", Time),
    sa.PrimaryKeyConstraint("session_pk", "number"),
    sa.UniqueConstraint("session_pk", "idempotency_key"),
    _partial("turns_running_ix", "state = 'running'", "session_pk", unique=True),
    _partial("turns_worker_ix", "state = 'running'", "worker"),
    _partial("turns_queue_ix", "state = 'queued'", "session_pk", "queue_position", unique=True),
    _partial("turns_flow_ix", "ready is not null", "app", "flow", "ready"),
    _partial("turns_tenant_ix", "ready is not null", "app", "tenant", "ready"),
    _partial("turns_due_ix", "state = 'scheduled'", "run_at"),
    _partial(
        "turns_answers_ix",
        "answers is not null",
        "session_pk",
        "invocation_id",
        "answers",
        unique=True,
    ),
    _partial("turns_waits_ix", "waits_for is not null", "session_pk", "invocation_id"),
    _partial("turns_log_ix", "ended is not null and trimmed is null", "ended"),
    _partial("turns_open_ix", "ended is null", "tenant"),
    _partial("turns_failed_ix", "state = 'failed'", "ended"),
    _partial("turns_tenant_failed_ix", "state = 'failed'", "tenant", "ended"),
    _partial("turns_key_ix", "key_id is not null", "key_id", "ended"),
    postgresql_with={"fillfactor": "70"},
)

sa.Table(
    "turn_events",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", Key, nullable=False),
    sa.Column("number", Key, nullable=False),
    sa.Column("epoch", Key, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.Column("batch", sa.Text),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "turn", "number"),
    _partial(
        "turn_events_batch_ix", "batch is not null", "session_pk", "turn", "batch", unique=True
    ),
)

sa.Table(
    "tool_ledger",
    metadata,
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

sa.Table(
    "installation",
    metadata,
    sa.Column("pk", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("held", Time),
)

sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("apps", Json, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started", Time, nullable=False),
    sa.Column("beat", Time, nullable=False),
    sa.Column("blamed", sa.Text),
)

sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("limits", Json),
    sa.Column("created", Time, nullable=False),
    sa.Column("expires", Time),
    sa.Column("revoked", Time),
    sa.Column("replaced_by", sa.Text),
    sa.Column("last_used", Time),
    sa.Index("api_keys_tenant_ix", "tenant", "created", "id"),
)

sa.Table(
    "allowances",
    metadata,
    sa.Column("caller", sa.Text, primary_key=True),
    sa.Column("next_request", sa.Double, nullable=False, server_default="0"),
    sa.Column("deleted_cost", sa.Double, nullable=False, server_default="0"),
    sa.Column("deleted_day", sa.Date),
)

sa.Table(
    "conversations",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", Key, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "turn", "hash"),
    sa.Index("conversations_hash_ix", "tenant", "user_id", "app_name", "hash", "session_pk"),
)

sa.Table(
    "memories",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_pk", Key),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("timestamp", sa.Double, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("metadata", Json),
    sa.Column("embedding", Vector),
    sa.Column("embedding_model", sa.Text, nullable=False, server_default=""),
    sa.Column("embedding_claimed", Time),
    _partial("memories_event_ix", "session_pk is not null", "session_pk", "event_id", unique=True),
    _partial(
        "memories_elsewhere_ix",
        "session_pk is null",
        "tenant",
        "app_name",
        "user_id",
        "session_id",
        "event_id",
        unique=True,
    ),
    sa.Index("memories_user_ix", "tenant", "user_id", "app_name", "pk"),
    sa.Index(
        "memories_embedding_ix",
        "app_name",
        "embedding_model",
        sa.text("pk desc"),
        postgresql_where=sa.text("text <> ''"),
    ).ddl_if(dialect="postgresql"),
    sa.Index(
        "memories_words_ix",
        sa.text("array_to_tsvector(string_to_array(terms, ' '))"),
        postgresql_using="gin",
    ).ddl_if(dialect="postgresql"),
    sqlite_autoincrement=True,
)

sa.Table(
    "credentials",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("version", Key, nullable=False),
    sa.Column("claimed", Time),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("updated", Time, nullable=False),
    sa.UniqueConstraint("tenant", "app_name", "user_id", "name"),
)

sa.Table(
    "credential_requests",
    metadata,
    sa.Column("state", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("claimed", Time),
    sa.Index("credential_requests_session_ix", "session_pk"),
)

WORD_INDEX = (
    "create virtual table memory_words using fts5(terms, content='memories', content_rowid='pk', "
    "tokenize='ascii', detail=none, columnsize=0)",
    "create trigger memories_added after insert on memories begin "
    "insert into memory_words (rowid, terms) values (new.pk, new.terms); end",
    "create trigger memories_deleted after delete on memories begin "
    "insert into memory_words (memory_words, rowid, terms) values ('delete', old.pk, old.terms); "
    "end",
    "create trigger memories_changed after update of terms on memories begin "
    "insert into memory_words (memory_words, rowid, terms) values ('delete', old.pk, old.terms); "
    "insert into memory_words (rowid, terms) values (new.pk, new.terms); end",
)
