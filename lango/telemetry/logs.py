"""Log records as JSON, one line each, for programs that collect logs. Nothing secret passes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from lango.core.current import current_turn, request_id
from lango.core.redaction import redacted
from lango.telemetry.tracing.current import current_trace_id

FIELDS: Final = "fields"
"""The attribute of a record whose mapping becomes fields of the line: `extra={FIELDS: {...}}`."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: see docs/how-to/monitoring.md for its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC)
        ids = {
            "request": request_id.get(),
            "turn": current_turn.get(),
            "trace": current_trace_id(),
        }
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
            **{name: value for name, value in ids.items() if value},
            **_fields_of(record),
        }
        trace = self._traceback(record)
        if trace:
            line["exception"] = redacted(trace)
        return json.dumps(line, ensure_ascii=False, default=str)

    def _traceback(self, record: logging.LogRecord) -> str:
        parts = [
            self.formatException(record.exc_info) if record.exc_info else "",
            self.formatStack(record.stack_info) if record.stack_info else "",
        ]
        return "\n".join(filter(None, parts))


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS, {})
    return {
        name: redacted(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value not in ("", None)
    }
