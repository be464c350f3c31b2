"""What the running task works for: a tenant, an HTTP request, a turn."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

current_tenant: Final = ContextVar("current_tenant", default="")
"""Shared resources are divided by it. Empty for work that a process does for all tenants."""
request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the HTTP request that the task serves, for its log lines."""

current_turn: Final[ContextVar[str]] = ContextVar("current_turn", default="")
"""The id of the turn that the task runs, for its log lines."""


class WithRequestId(logging.Filter):
    """Adds `request` to log records: the id in brackets and a space, or an empty text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the field; every record passes."""
        current_id = request_id.get()
        record.request = f"[{current_id}] " if current_id else ""
        return True
