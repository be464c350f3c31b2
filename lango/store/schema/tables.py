"""The tables that this version of lango uses; `migrations/` creates and changes them.

Keys begin with the session, so that messages can be hash-partitioned or sharded by it.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql

from lango.store.db.json_column import json_column

metadata: Final = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_ix",
        "uq": "%(table_name)s_%(column_0_N_name)s_uq",
        "pk": "%(table_name)s_pk",
    }
)

Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite generates only INTEGER keys
Time = sa.DateTime(timezone=True)
Json = json_column()
Vector = postgresql.ARRAY(sa.REAL).with_variant(sa.Text, "sqlite")  # always null on SQLite

sessions: Final = sa.Table(
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
    # The turn that wrote last: every load includes its rows, regardless of the budget.
    sa.Column("invocation_id", sa.Text, nullable=False, server_default=""),
    sa.Column("turn_seq", Key, nullable=False, server_default="1"),
    # Older rows that every load includes: see store/sessions/retained_rows.py.
    sa.Column("compacted_seq", Key),
    sa.Column("open_calls", Json),
    sa.Column("closed_calls", Json),
    sa.Column("created", Time, nullable=False),
    sa.Column("updated", Time, nullable=False),
    # The only indexed time, changed once per turn: other appends stay heap-only updates.
    sa.Column("last_activity", Time, nullable=False),
    sa.UniqueConstraint("tenant", "app_name", "user_id", "id"),
    postgresql_with={"fillfactor": "70"},
    sqlite_autoincrement=True,  # else a new session could reuse the key of a deleted one
)
sa.Index(
    "sessions_user_activity_ix",
    sessions.c.tenant,
    sessions.c.app_name,
    sessions.c.user_id,
    sessions.c.last_activity,
    sessions.c.pk,
)
sa.Index(
    "sessions_app_activity_ix",
    sessions.c.tenant,
    sessions.c.app_name,
    sessions.c.last_activity,
    sessions.c.pk,
)
_is_child = sessions.c.parent_pk.is_not(None)
sa.Index(
    "sessions_parent_ix",
    sessions.c.tenant,
    sessions.c.parent_pk,
    postgresql_where=_is_child,
    sqlite_where=_is_child,
)

messages: Final = sa.Table(
    "messages",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("seq", Key, nullable=False),
    sa.Column("cum_tokens", Key, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("timestamp", sa.Double, nullable=False),  # ADK's float, exact
    sa.Column("undone_by", Key),  # the seq of the rewind that undid this row
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("tool_calls", Json),
    sa.Column("event", Json),  # only what the other columns do not hold
    sa.Column("changes", Json),  # state and artifacts this event changed
    sa.PrimaryKeyConstraint("session_pk", "seq"),
    sa.UniqueConstraint("session_pk", "event_id"),
)
_live = messages.c.undone_by.is_(None)
sa.Index(
    "messages_window_ix",
    messages.c.session_pk,
    messages.c.cum_tokens,
    postgresql_where=_live,
    sqlite_where=_live,
)
_changing = messages.c.changes.is_not(None)
sa.Index(
    "messages_changes_ix",
    messages.c.session_pk,
    messages.c.seq,
    postgresql_where=_changing,
    sqlite_where=_changing,
)

state_changes: Final = sa.Table(
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

app_states: Final = sa.Table(
    "app_states",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", json_column(none_as_null=False)),
    sa.PrimaryKeyConstraint("tenant", "app_name", "key"),
)

user_states: Final = sa.Table(
    "user_states",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("value", json_column(none_as_null=False)),
    sa.PrimaryKeyConstraint("tenant", "app_name", "user_id", "key"),
)

model_calls: Final = sa.Table(
    "model_calls",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),  # the order they were written in
    sa.Column("session_pk", Key),  # null: the session is stored elsewhere
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("turn", sa.Text, nullable=False),  # the invocation id
    sa.Column("turn_number", Key),  # of the claimed turn that made the call, for all its attempts
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),  # of the attempt, within its call
    sa.Column("kind", sa.Text, nullable=False),  # "answer" or "summary"
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("provider", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("started", Time, nullable=False),
    sa.Column("first_byte", Time),
    sa.Column("ended", Time, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),  # "started" until the attempt ends
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("estimated_tokens", Key, nullable=False),
    # As the provider reported them; null if it did not.
    sa.Column("input_tokens", Key),
    sa.Column("cached_tokens", Key),
    sa.Column("output_tokens", Key),
    sa.Column("reasoning_tokens", Key),
    sa.Column("price", sa.Double),  # US dollars
    sa.Column("budget", Key, nullable=False),
    sa.Column("first_seq", Key),
    sa.Column("last_seq", Key),
    sa.Column("sent", sa.Integer, nullable=False),
    sa.Column("left_out", sa.Integer, nullable=False),
    sa.Column("shortened", Json),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("system_hash", sa.Text),
    sa.Column("tools_hash", sa.Text),
    sa.UniqueConstraint("call_id", "number"),  # a repeated write finds its row by it
    sqlite_autoincrement=True,
)
sa.Index("model_calls_session_ix", model_calls.c.session_pk, model_calls.c.pk)
sa.Index("model_calls_started_ix", model_calls.c.tenant, model_calls.c.started)
_of_turn = model_calls.c.turn_number.is_not(None)
sa.Index(
    "model_calls_turn_ix",
    model_calls.c.session_pk,
    model_calls.c.turn_number,
    postgresql_where=_of_turn,
    sqlite_where=_of_turn,
)
# Any user may query their usage: the query must not read the calls of others.
sa.Index("model_calls_user_ix", model_calls.c.tenant, model_calls.c.user_id, model_calls.c.started)
_elsewhere = model_calls.c.session_pk.is_(None)
sa.Index(
    "model_calls_elsewhere_ix",
    model_calls.c.tenant,
    model_calls.c.app_name,
    model_calls.c.user_id,
    model_calls.c.session_id,
    model_calls.c.pk,
    postgresql_where=_elsewhere,
    sqlite_where=_elsewhere,
)

prompt_parts: Final = sa.Table(
    "prompt_parts",
    metadata,
    sa.Column("tenant", sa.Text, nullable=False),  # tenants never share a text
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # "system" or "tools"
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("tenant", "hash"),
)

# Which sessions sent a part: it is deleted with the last of them.
prompt_part_sessions: Final = sa.Table(
    "prompt_part_sessions",
    metadata,
    sa.Column("session_pk", Key, nullable=False),  # 0: a session that is stored elsewhere
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "tenant", "hash"),
)
sa.Index("prompt_part_sessions_hash_ix", prompt_part_sessions.c.tenant, prompt_part_sessions.c.hash)

artifacts: Final = sa.Table(
    "artifacts",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),  # "" for an artifact of the user
    sa.Column("kind", sa.Text, nullable=False),  # "artifact", or "event" for data moved out of one
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("mime_type", sa.Text),
    sa.Column("size", Key, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("object_key", sa.Text),  # null: its bytes are in artifact_chunks
    sa.Column("call_id", sa.Text),  # the tool call or the save that wrote it
    sa.Column("part", Json, nullable=False),  # the ADK part without its bytes
    sa.Column("metadata", Json),
    sa.Column("created", Time, nullable=False),
    sa.UniqueConstraint("tenant", "app_name", "user_id", "session_id", "kind", "name", "version"),
    sqlite_autoincrement=True,
)

_has_object = artifacts.c.object_key.is_not(None)
sa.Index(
    "artifacts_object_ix",
    artifacts.c.object_key,
    postgresql_where=_has_object,
    sqlite_where=_has_object,
)

artifact_chunks: Final = sa.Table(
    "artifact_chunks",
    metadata,
    sa.Column("artifact_pk", Key, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("artifact_pk", "number"),
)

object_deletions: Final = sa.Table(
    "object_deletions",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),  # of an object whose rows were deleted
)

object_store: Final = sa.Table(
    "object_store",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # 1: there is one row
    sa.Column("folder", sa.Text, nullable=False),  # of this database's objects
    sa.Column("swept", Time, nullable=False),  # when a process began to look for unused ones
)

turns: Final = sa.Table(
    "turns",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("number", Key, nullable=False),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    # Copies of the session's columns, which save a join.
    sa.Column("app", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False, server_default=""),
    sa.Column("flow", sa.Text, nullable=False, server_default=""),  # tenant and key
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("input", Json, nullable=False),
    sa.Column("options", Json, nullable=False),
    sa.Column("input_hash", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text, nullable=False),  # its own id when none was given
    sa.Column("run_at", Time),
    # The position of a queued turn; a turn that interrupts goes below the lowest.
    sa.Column("queue_position", Key),
    # Since when the turn is claimable: only the first queued one of a session where none runs is.
    sa.Column("ready", Time),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("handed_over", sa.Integer, nullable=False, server_default="0"),  # by live workers
    # Workers that died while this turn was the only suspect.
    sa.Column("lost_alone", sa.Integer, nullable=False, server_default="0"),
    sa.Column("close_failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("closing", sa.Boolean, nullable=False, server_default=sa.false()),  # only to close
    sa.Column("epoch", Key, nullable=False, server_default="0"),
    sa.Column("worker", sa.Text),
    sa.Column("claim_id", sa.Text),
    # The agent that runs it, and the last different one that ran an earlier attempt.
    sa.Column("fingerprint", sa.Text, nullable=False, server_default=""),
    sa.Column("ran_under", sa.Text, nullable=False, server_default=""),
    sa.Column("time_limit", sa.Double, nullable=False),
    sa.Column("deadline", Time),
    sa.Column("answers", sa.Text),  # the call of its invocation that this turn answers
    sa.Column("key_id", sa.Text),  # whose limits it counts towards: an API key, or a token's user
    sa.Column("cost_limit", sa.Double),  # US dollars of that caller's day
    sa.Column("traceparent", sa.Text),  # W3C Trace Context of the request that submitted it
    sa.Column("waits_for", Json),  # the calls that a person is asked about
    sa.Column("usage", Json),
    sa.Column("error", Json),
    sa.Column("causes", Json),  # of its failures, by error id; for operators, not for clients
    sa.Column("last_event", Key, nullable=False, server_default="0"),
    sa.Column("trimmed", Time),  # when its log was dropped
    sa.Column("created", Time, nullable=False),
    sa.Column("started", Time),
    sa.Column("ended", Time),
    sa.PrimaryKeyConstraint("session_pk", "number"),
    sa.UniqueConstraint("session_pk", "idempotency_key"),
    postgresql_with={"fillfactor": "70"},  # space for the log's counter, which changes often
)


def _partial(
    name: str, condition: sa.ColumnElement[bool], *columns: sa.Column[Any], unique: bool = False
) -> None:
    """A partial index of the few rows that queries look for."""
    sa.Index(name, *columns, unique=unique, postgresql_where=condition, sqlite_where=condition)


# Literals, not parameters: without the value, a planner does not see that a partial index fits.
IS_SCHEDULED: Final = turns.c.state == sa.literal_column("'scheduled'")
IS_QUEUED: Final = turns.c.state == sa.literal_column("'queued'")
IS_RUNNING: Final = turns.c.state == sa.literal_column("'running'")
IS_FAILED: Final = turns.c.state == sa.literal_column("'failed'")
_has_log = sa.and_(turns.c.ended.is_not(None), turns.c.trimmed.is_(None))
_answered = (turns.c.session_pk, turns.c.invocation_id, turns.c.answers)
_partial("turns_running_ix", IS_RUNNING, turns.c.session_pk, unique=True)  # one at most
_partial("turns_worker_ix", IS_RUNNING, turns.c.worker)
_partial("turns_queue_ix", IS_QUEUED, turns.c.session_pk, turns.c.queue_position, unique=True)
_is_ready = turns.c.ready.is_not(None)
_partial("turns_flow_ix", _is_ready, turns.c.app, turns.c.flow, turns.c.ready)
_partial("turns_tenant_ix", _is_ready, turns.c.app, turns.c.tenant, turns.c.ready)
_partial("turns_due_ix", IS_SCHEDULED, turns.c.run_at)
_partial("turns_answers_ix", turns.c.answers.is_not(None), *_answered, unique=True)
_partial("turns_waits_ix", turns.c.waits_for.is_not(None), *_answered[:2])
_partial("turns_log_ix", _has_log, turns.c.ended)
_partial("turns_open_ix", turns.c.ended.is_(None), turns.c.tenant)
_partial("turns_failed_ix", IS_FAILED, turns.c.ended)
_partial("turns_tenant_failed_ix", IS_FAILED, turns.c.tenant, turns.c.ended)
_partial("turns_key_ix", turns.c.key_id.is_not(None), turns.c.key_id, turns.c.ended)

turn_events: Final = sa.Table(
    "turn_events",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", Key, nullable=False),
    sa.Column("number", Key, nullable=False),
    sa.Column("epoch", Key, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("data", Json, nullable=False),
    # Set on the first event of a batch: a retry after a fault recognises its batch by it.
    sa.Column("batch", sa.Text),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "turn", "number"),
)
_partial(
    "turn_events_batch_ix",
    turn_events.c.batch.is_not(None),
    *(turn_events.c.session_pk, turn_events.c.turn, turn_events.c.batch),
    unique=True,
)

tool_ledger: Final = sa.Table(
    "tool_ledger",
    metadata,
    sa.Column("session_pk", Key, nullable=False),  # of the root session
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("call_key", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("args", Json, nullable=False),
    sa.Column("status", sa.Text, nullable=False),  # "started" or "finished"
    sa.Column("result", Json),
    sa.Column("actions", Json),
    sa.Column("epoch", Key, nullable=False),
    sa.Column("token", sa.Text, nullable=False),  # of the start: a retry recognises its entry by it
    sa.Column("started", Time, nullable=False),
    sa.Column("finished", Time),
    sa.PrimaryKeyConstraint("session_pk", "invocation_id", "call_key"),
)

# One row: which database this is. A restored dump has the identity of the database that it came
# from: see store/hold.py.
installation: Final = sa.Table(
    "installation",
    metadata,
    sa.Column("pk", sa.Integer, primary_key=True, autoincrement=False),  # always 1
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("held", Time),  # since when an operator holds it
)

workers: Final = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("apps", Json, nullable=False),  # the fingerprint of each agent it has loaded
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started", Time, nullable=False),
    sa.Column("beat", Time, nullable=False),  # by the database's clock
    # The turn that is blamed for the worker's death, "" if it could be any of several.
    sa.Column("blamed", sa.Text),
)

api_keys: Final = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text),  # null: requests name the user they act for, or none
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("limits", Json),
    sa.Column("created", Time, nullable=False),
    sa.Column("expires", Time),
    sa.Column("revoked", Time),
    sa.Column("replaced_by", sa.Text),  # the key it was rotated to
    sa.Column("last_used", Time),
)
sa.Index("api_keys_tenant_ix", api_keys.c.tenant, api_keys.c.created, api_keys.c.id)

allowances: Final = sa.Table(
    "allowances",
    metadata,
    sa.Column("caller", sa.Text, primary_key=True),  # as `turns.key_id`
    # The theoretical arrival time of the next request (GCRA), in epoch seconds.
    sa.Column("next_request", sa.Double, nullable=False, server_default="0"),
    # The cost of the day's calls of deleted sessions: deleting is no refund.
    sa.Column("deleted_cost", sa.Double, nullable=False, server_default="0"),
    sa.Column("deleted_day", sa.Date),
)

conversations: Final = sa.Table(
    "conversations",
    metadata,
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", Key, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),  # of all that was visible when the turn had ended
    *(sa.Column(name, sa.Text, nullable=False) for name in ("tenant", "user_id", "app_name")),
    sa.Column("created", Time, nullable=False),
    sa.PrimaryKeyConstraint("session_pk", "turn", "hash"),
)
_owner_columns = (conversations.c.tenant, conversations.c.user_id, conversations.c.app_name)
_hash_columns = (*_owner_columns, conversations.c.hash, conversations.c.session_pk)
sa.Index("conversations_hash_ix", *_hash_columns)

memories: Final = sa.Table(
    "memories",
    metadata,
    sa.Column("pk", Key, sa.Identity(), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("app_name", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_pk", Key),  # null: of the user, or of a session that is stored elsewhere
    sa.Column("session_id", sa.Text, nullable=False),  # "" for an entry of the user
    sa.Column("event_id", sa.Text, nullable=False),  # the message it came from
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("timestamp", sa.Double, nullable=False),
    sa.Column("text", sa.Text, nullable=False),  # "" if it was deleted, and must not come back
    sa.Column("terms", sa.Text, nullable=False),  # its owner and its words: see core/memory.py
    sa.Column("metadata", Json),
    # Of its text, added by workers after the entry (ADR 37); an array needs no extension.
    sa.Column("embedding", Vector),
    sa.Column("embedding_model", sa.Text, nullable=False, server_default=""),
    sa.Column("embedding_claimed", Time),  # since when a worker makes it
    sqlite_autoincrement=True,
)
_in_session = memories.c.session_pk.is_not(None)
_partial("memories_event_ix", _in_session, memories.c.session_pk, memories.c.event_id, unique=True)
_partial(
    "memories_elsewhere_ix",
    memories.c.session_pk.is_(None),
    *(memories.c.tenant, memories.c.app_name, memories.c.user_id),
    *(memories.c.session_id, memories.c.event_id),
    unique=True,
)
# By user before app: the deletion of a user's data goes through all apps.
sa.Index(
    "memories_user_ix",
    *(memories.c.tenant, memories.c.user_id, memories.c.app_name, memories.c.pk),
)
# Finds the entries of an app without an embedding of its model, the newest first.
sa.Index(
    "memories_embedding_ix",
    *(memories.c.app_name, memories.c.embedding_model, memories.c.pk.desc()),
    postgresql_where=memories.c.text != sa.literal_column("''"),
).ddl_if(dialect="postgresql")
# The words are lexemes already: no parser changes them, whatever the server's locale.
_words = sa.func.array_to_tsvector(
    sa.func.string_to_array(memories.c.terms, sa.literal_column("' '"))
)
sa.Index("memories_words_ix", _words, postgresql_using="gin").ddl_if(dialect="postgresql")

WORD_INDEX: Final = (
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
"""The same index on SQLite, equal to its table by triggers: `ascii` splits at spaces alone."""
for _statement in WORD_INDEX:
    event.listen(memories, "after_create", sa.DDL(_statement).execute_if(dialect="sqlite"))

_credential_owner = ("tenant", "app_name", "user_id")
credentials: Final = sa.Table(
    "credentials",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *(sa.Column(name, sa.Text, nullable=False) for name in _credential_owner),
    sa.Column("name", sa.Text, nullable=False),  # ADK's credential key
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("version", Key, nullable=False),  # a refresh replaces only the version it has read
    sa.Column("claimed", Time),  # since when a turn refreshes it
    sa.Column("key_id", sa.Text, nullable=False),  # of the key that encrypted it
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("updated", Time, nullable=False),
    sa.UniqueConstraint(*_credential_owner, "name"),
)

credential_requests: Final = sa.Table(
    "credential_requests",
    metadata,
    sa.Column("state", sa.Text, primary_key=True),  # random, of the consent address
    *(sa.Column(name, sa.Text, nullable=False) for name in _credential_owner),
    sa.Column("session_pk", Key, nullable=False),
    sa.Column("turn", sa.Text, nullable=False),  # the invocation that waits
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created", Time, nullable=False),
    sa.Column("claimed", Time),  # while an answer is exchanged
)
sa.Index("credential_requests_session_ix", credential_requests.c.session_pk)
