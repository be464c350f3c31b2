"""Stuck transactions: their process hangs at the one moment that PostgreSQL's timeout misses.

`idle_in_transaction_session_timeout` ends a transaction that waits for its process, but not while
a statement has been parsed and not yet executed: asyncpg sends two messages and waits for an answer
in between. The server calls that "active", cancels nothing while it reads from the client, and a
process frozen there keeps its rows locked for ever. An operation that waits for them ends it.
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
"""Ends only our own connections, and of those only the ones that have changed or locked rows.

The parameter is the seconds that the process has been silent.
"""
