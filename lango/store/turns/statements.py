"""Submit, claim and close in SQL for PostgreSQL: one statement each, for the usual case (ADR 26).

Each does all of it or nothing. If it does nothing, the caller goes step by step in a transaction,
as on SQLite, which also finds out why. `t` is always the turn that the statement changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lango.core.memory import MAX_TEXT
from lango.core.turns.events import Started
from lango.core.turns.states import Accepted
from lango.store.db.statement import Row, row_of_columns
from lango.store.memory.rows import MESSAGE_COLUMNS
from lango.store.schema.tables import turns
from lango.store.turns.usage import CUT_OFF, STARTED

_TURN: Final = ", ".join(f"turns.{name}" for name in turns.c.keys())  # noqa: SIM118
_EVENT: Final = "turn_events (session_pk, turn, number, epoch, type, data, created)"

_turn_row: Final = row_of_columns(*turns.c.keys())


def turn_and_rest(record: Sequence[Any]) -> tuple[Row | None, Sequence[Any]]:
    """The turn's row at the beginning of a record, if there is one, and the other columns."""
    row = _turn_row(record[: len(turns.c)])
    return (None if row.id is None else row), record[len(turns.c) :]


# For `fetch_locked`, with the session's key as its first arguments. The last select reads `s`: so
# both runs lock it. Returns nothing without such a session, and nulls if nothing was inserted. The
# first run notes which session it has locked, for the length of the transaction: a session that was
# created between the runs was not, and a second run that waits for it would not see its turns.
SUBMIT_LOCKS: Final = 4
SUBMIT_VALUES: Final = (
    *("id", "flow", "input", "options"),
    *("input_hash", "time_limit", "key_id", "cost_limit", "traceparent"),
)
"""The columns of the new turn in the arguments from $11 on; the last one is the title."""
SUBMIT: Final = f"""
with s as (
  select pk, epoch from sessions
  where tenant = $2 and app_name = $3 and user_id = $4 and id = $5
    and ($6::bigint is null or pk = $6) and ($7::text is null or public_id = $7)
  for update
), q as (
  select pk, epoch,
    coalesce((select max(number) from turns where session_pk = s.pk), 0) as last_number,
    (select max(queue_position) from turns where session_pk = s.pk and state = 'queued')
      as last_position,
    exists (select from turns where session_pk = s.pk and state = 'running') as is_running
  from s
  where $1::boolean and current_setting('lango.locked', true) = s.pk::text
    and not exists (select from turns where session_pk = s.pk and idempotency_key = $8)
), t as (
  insert into turns (session_pk, number, queue_position, ready, state, epoch, last_event, created,
    tenant, app, idempotency_key, id, invocation_id, flow, input, options, input_hash, time_limit,
    key_id, cost_limit, traceparent)
  select pk, last_number + 1, coalesce(last_position, 0) + 1,
    case when last_position is null and not is_running then now() end, 'queued', epoch, 1, now(),
    $2, $3, $8, $11, $11, $12, $13, $14, $15, $16, $17, $18, $19
  from q
  where ($9::bigint is null or last_number = $9)
    and not ($10::boolean and (is_running or last_position is not null))
  returning {_TURN}
), n as (
  update sessions set title = $20 from t
  where sessions.pk = t.session_pk and t.number = 1 and sessions.title = ''
), e as (
  insert into {_EVENT}
  select session_pk, number, 1, epoch, '{Accepted.type}', json_build_object('number', number), now()
  from t
)
select case when $1 then true else set_config('lango.locked', s.pk::text, true) is null end, t.*
from s left join t on true"""  # noqa: S608 - our own names

# Claims the ready turn of a session that no worker owns. It never waits for a lock, and decides by
# rows that it has locked: if another transaction has changed one since the statement began,
# PostgreSQL checks the conditions again on the new row. Returns nothing if the session's row is
# locked or deleted, and nulls in place of the turn if it was not claimed.
CLAIM: Final = f"""
with s as (
  select pk, epoch, owner, tenant, app_name, user_id, id from sessions where pk = $1
  for update skip locked
), t as (
  update turns set
    state = 'running', ready = null, epoch = s.epoch + 1, attempts = turns.attempts + 1,
    worker = w.id, claim_id = $3, fingerprint = a.fingerprint, started = now(),
    deadline = now() + make_interval(secs => turns.time_limit), last_event = turns.last_event + 1
  from s
    join unnest($5::text[], $6::text[]) as a(app, fingerprint) on a.app = s.app_name
    join workers w on w.id = $2 and w.beat > now() - make_interval(secs => $4)
  where s.owner is null and turns.session_pk = s.pk and turns.state = 'queued'
    and turns.ready is not null and turns.attempts = 0
  returning {_TURN}
), o as (
  update sessions set epoch = t.epoch, owner = t.worker from t where sessions.pk = t.session_pk
), e as (
  insert into {_EVENT}
  select session_pk, number, last_event, epoch, '{Started.type}',
    json_build_object('attempt', attempts), now()
  from t
)
select t.*, s.tenant, s.app_name, s.user_id, s.id,
  s.owner <> $2 and exists (select from workers
    where id = s.owner and beat > now() - make_interval(secs => $4)) as is_held
from s left join t on true"""  # noqa: S608

# For `fetch_locked`, with the session as its first argument. Makes the next turn ready. Returns
# nothing without such a session, and nulls if the turn was not closed.
CLOSE_LOCKS: Final = 1
next_row: Final = row_of_columns("session_pk", "id", "run_at")
"""The row of the next turn, from the last columns of what the statement returns."""
_CLOSE: Final = f"""
with s as (
  select pk, epoch, owner, tenant, app_name, user_id, id from sessions where pk = $2 for update
), t as (
  update turns set
    state = $5, ended = now(), usage = $6, error = $7, causes = $8,
    last_event = last_event + cardinality($9::text[])
  from s
  where $1::boolean and turns.session_pk = s.pk and turns.number = $3 and turns.claim_id = $4
    and turns.state = 'running' and turns.epoch = s.epoch and s.owner is not null
  returning {_TURN}
), c as (
  update model_calls set outcome = '{CUT_OFF}', ended = now() from t
  where model_calls.session_pk = t.session_pk and turn_number = t.number
    and outcome = '{STARTED}'
), o as (
  update sessions set owner = null from t where sessions.pk = t.session_pk
), n as (
  update turns set ready = now() from t
  where turns.session_pk = t.session_pk and turns.state = 'queued' and turns.ready is null
    and turns.queue_position = (
      select min(queue_position) from turns where session_pk = $2 and state = 'queued')
  returning turns.session_pk, turns.id, turns.run_at
), e as (
  insert into {_EVENT}
  select t.session_pk, t.number, t.last_event - cardinality($9::text[]) + e.ordinal, t.epoch,
    e.type, e.data, now()
  from t, unnest($9::text[], $10::json[]) with ordinality as e(type, data, ordinal)
)"""  # noqa: S608
_CLOSED: Final = "select $1, t.*, n.* from s left join t on true left join n on true"
CLOSE: Final = f"{_CLOSE}\n{_CLOSED}"
CLOSE_AND_REMEMBER: Final = f"""{_CLOSE}, m as (
  insert into memories ({", ".join(MESSAGE_COLUMNS)})
  select s.tenant, s.app_name, s.user_id, s.pk, s.id, messages.event_id, messages.author,
    messages.role, messages.timestamp, substr(messages.content, 1, {MAX_TEXT}), w.terms
  from s join t on t.session_pk = s.pk
    cross join unnest($11::bigint[], $12::text[]) as w(seq, terms)
    join messages on messages.session_pk = s.pk and messages.seq = w.seq
  order by w.seq
  on conflict do nothing
)
{_CLOSED}"""  # noqa: S608
"""`CLOSE` for a turn whose messages are added to the user's memory: their numbers and words."""
