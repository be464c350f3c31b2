"""The id of the HTTP request that this task works for, for the lines it logs."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


class WithRequestId(logging.Filter):
    """Gives log records a `request`: the id in brackets and a space, or nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add it; every record passes."""
        known = request_id.get()
        record.request = f"[{known}] " if known else ""
        return True
