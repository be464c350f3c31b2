"""The two hot statements, append and load, in SQL for PostgreSQL.

Written by hand because each must be one round trip on a raw asyncpg connection (ADR 3). Most of
this layer is SQLAlchemy Core: prepared where it is hot, plain elsewhere.
"""

from __future__ import annotations

from itertools import count, product
from typing import Final

# JSON as text: callers parse a value when they need it, and most rows of a window need none.
_ROW: Final = """seq, event_id, invocation_id, role, author, content, tool_calls::text, tokens,
  timestamp, event::text, changes::text"""

# The update locks the session row and assigns the sequence number. If the event id exists already,
# or this writer may not write, or older rows must be read, it updates nothing, so nothing is
# inserted. `not exists` does not see a duplicate that commits while we wait for the row's lock; the
# unique key then refuses the insert and rolls back the whole statement.
# The tenant is compared inside `case`, hidden from the planner: on tables that were never analysed
# it would prefer an index that begins with the tenant, and scan all of the tenant's sessions.
_APPEND_SESSION: Final = """
with s as (
  update sessions set
    next_seq = next_seq + 1,
    total_tokens = total_tokens + $3,
    message_count = message_count + $4,
    {turn}
    {state}
    updated = $6
  where pk = $1
    and case when tenant <> $2 then false
             when $7::bigint is null then owner is null
             else epoch = $7 and owner is not null end
    and open_calls is null
    and not exists (select from messages where session_pk = $1 and event_id = $8)
    and not exists (select from state_changes where session_pk = $1 and event_id = $8)
  returning next_seq - 1 as seq, total_tokens
)"""

_TURN: Final = """turn_seq = case when invocation_id = $5 then turn_seq else next_seq end,
    last_activity = case when invocation_id = $5 then last_activity else now() end,
    invocation_id = $5,"""

# Left out if there is nothing to merge: the server sets up even parts that it never runs, a tenth
# of its work for an append. Cast to json first: as jsonb, numbers would change.
_STATE: Final = """state = (
      select json_object_agg(key, value) from (
        select key, value from json_each(state) where not {new}::json::jsonb ? key
        union all select key, value from json_each({new}::json)) merged),"""

_APPEND_MESSAGE: Final = """, m as (
  insert into messages (session_pk, seq, cum_tokens, created, timestamp, tokens, event_id,
    invocation_id, role, author, content, tool_calls, event, changes)
  select $1, seq, total_tokens, $6, $9, $3, $8, $5, $10, $11, $12, $13, $14, $15 from s
)"""

_APPEND_STATE_CHANGE: Final = """, m as (
  insert into state_changes (session_pk, seq, event_id, invocation_id, delta)
  select $1, seq, $8, $5, $9 from s
)"""

# Locks the rows of shared states in the order of their keys; a deadlock is retried all the same.
_APPEND_SHARED_STATE: Final = """, a as (
  insert into app_states (tenant, app_name, key, value)
  select $2, {app}, k.key, k.value from s, json_each({app_state}::json) k order by k.key
  on conflict (tenant, app_name, key) do update set value = excluded.value
  returning 1
), u as (
  insert into user_states (tenant, app_name, user_id, key, value)
  select $2, {app}, {user}, k.key, k.value
  from s, json_each({user_state}::json) k, (select count(*) from a) as after_app order by k.key
  on conflict (tenant, app_name, user_id, key) do update set value = excluded.value
)"""


def append_statement(*, state_only: bool, session_state: bool, shared_state: bool) -> str:
    """Epoch check, sequence, state merge, insert and duplicate check in one statement."""
    insert, last = (_APPEND_STATE_CHANGE, 9) if state_only else (_APPEND_MESSAGE, 15)
    parameters = (f"${number}" for number in count(last + 1))
    state = _STATE.format(new=next(parameters)) if session_state else ""
    sql = _APPEND_SESSION.format(turn="" if state_only else _TURN, state=state) + insert
    if shared_state:
        names = ("app", "user", "app_state", "user_state")
        sql += _APPEND_SHARED_STATE.format(**{name: f"{next(parameters)}::text" for name in names})
    return sql + "\nselect seq from s"


APPEND: Final = {
    (state_only, session_state, shared): append_statement(
        state_only=state_only, session_state=session_state, shared_state=shared
    )
    for state_only, session_state, shared in product((False, True), repeat=3)
}

WHY_NOT_APPENDED: Final = """
select s.epoch, s.owner, s.open_calls is not null as has_open_calls,
  coalesce((select seq from messages where session_pk = $1 and event_id = $3),
           (select seq from state_changes where session_pk = $1 and event_id = $3)) as seq
from sessions s where s.pk = $1 and s.tenant = $2"""

# A session with the states of its app and user, whose names are the first three parameters.
_HEADER: Final = """
    'pk', pk, 'public_id', public_id, 'title', title, 'state', state, 'next_seq', next_seq,
    'total_tokens', total_tokens, 'message_count', message_count, 'turn_seq', turn_seq,
    'open_calls', open_calls,
    'created', extract(epoch from created), 'updated', extract(epoch from updated),
    'last_activity', extract(epoch from last_activity),
    'app_state', (select json_object_agg(key, value) from app_states a
                  where a.tenant = $1 and a.app_name = $2),
    'user_state', (select json_object_agg(key, value) from user_states u
                   where u.tenant = $1 and u.app_name = $2 and u.user_id = $3)"""

# No row if the name or the public id is taken.
CREATE: Final = f"""
with s as (
  insert into sessions (tenant, app_name, user_id, id, public_id, state, title, created, updated,
    last_activity)
  values ($1, $2, $3, $4, $5, $6::json, $7, now(), now(), now())
  on conflict do nothing returning *
)
select json_build_object({_HEADER})::text from s"""  # noqa: S608 - the only part is a constant


# One statement, so that state and messages are one snapshot. The session comes first, as JSON in
# the `event` column of a row 0; then the newest compaction if the window begins after it; then the
# window. Scalar subqueries, not joins: joined, the planner left the index at 50,000 rows.
LOAD: Final = f"""
with s as materialized (
  select * from sessions where tenant = $1 and app_name = $2 and user_id = $3 and id = $4
), w as materialized (
  select case when $5::bigint is null or total_tokens <= $5 then 0 else least(turn_seq - 1, (
      select seq from messages
      where session_pk = s.pk and undone_by is null and cum_tokens >= s.total_tokens - $5
      order by cum_tokens, seq limit 1)) end as after
  from s
)
select 0::bigint as seq, '' as event_id, '' as invocation_id, '' as role, '' as author,
  '' as content, null as tool_calls, 0 as tokens, 0::float8 as timestamp,
  json_build_object({_HEADER}, 'after', (select after from w))::text as event, null as changes
from s
union all
select {_ROW} from messages
where session_pk = (select pk from s) and seq = (select compacted_seq from s)
  and seq <= (select after from w) and undone_by is null
union all
select {_ROW} from messages
where session_pk = (select pk from s) and seq > (select after from w)
  and undone_by is null"""  # noqa: S608 - the only part put in is a constant above
