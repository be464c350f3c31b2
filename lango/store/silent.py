"""Transactions whose process has fallen silent at the one moment when PostgreSQL does not see it.

A transaction that waits for its process is ended by `idle_in_transaction_session_timeout`, but not
while a statement has been parsed and not yet executed: two messages of one statement, between which
asyncpg waits for an answer. The server calls that "active", cancels nothing while it reads from the
client, and a process frozen there keeps its rows for ever. Whoever waits for them ends it.
"""

from __future__ import annotations

from typing import Final

END_SILENT: Final = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and usename = current_user
  and application_name = current_setting('application_name')
  and state = 'active' and wait_event = 'ClientRead' and backend_xid is not null
  and state_change < now() - make_interval(secs => $1)
"""
"""Of our own connections alone, and of those only what has changed or locked rows.

Takes the seconds of silence.
"""
