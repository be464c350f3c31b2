"""The error that a model sees when a tool fails, without internal details."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from lango.core.causes import Cause, cause_of
from lango.core.ids import new_id
from lango.core.values import storable_text
from lango.errors import ToolError
from lango.telemetry.logs import FIELDS
from lango.telemetry.tracing.current import tracer

logger = logging.getLogger(__name__)

MAX_TEXT: Final = 2_000
"""Characters of an error's own text that a model sees."""
_MAX_RECENT: Final = 1_000
_recent: Final[OrderedDict[str, Cause]] = OrderedDict()
"""Causes of the newest failures by error id, until their turns take them."""


def feedback(error: Exception, tool_name: str) -> dict[str, str]:
    """The response to a failed call; the log has the traceback under the same id.

    A ToolError's text is written for the model and passed on. Of other errors the model learns
    only that the tool failed: their text may hold a password or another user's data.
    """
    error_id = new_id("err")
    meant_for_model = isinstance(error, ToolError)
    level = logging.INFO if meant_for_model else logging.ERROR
    tracing = tracer()
    if tracing is not None:
        tracing.tool_failed(error, error_id)
    known_by = {FIELDS: {"error_id": error_id, "tool": tool_name}}
    logger.log(level, "Tool %r failed (%s)", tool_name, error_id, exc_info=error, extra=known_by)
    text = str(error) if meant_for_model else f"The tool {tool_name} failed unexpectedly."
    if not meant_for_model:
        _recent[error_id] = cause_of(error)
        if len(_recent) > _MAX_RECENT:
            _recent.popitem(last=False)
    return {"error": storable_text(text[:MAX_TEXT]), "error_id": error_id}


def take_cause(error_id: str) -> Cause | None:
    """Remove and return the cause of a failure in this process; None if it is unknown."""
    return _recent.pop(error_id, None)
