"""The id of the HTTP request that the current task serves, for its log lines."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")


class WithRequestId(logging.Filter):
    """Adds `request` to log records: the id in brackets and a space, or an empty text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the field; every record passes."""
        known = request_id.get()
        record.request = f"[{known}] " if known else ""
        return True
