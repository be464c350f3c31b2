"""What a model is told of a tool that failed: enough to go on, nothing of the inside."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from lango.core.causes import Cause, cause_of
from lango.core.ids import new_id
from lango.core.values import storable_text
from lango.errors import ToolError

logger = logging.getLogger(__name__)

MAX_TEXT: Final = 2_000
"""Characters of an error's own text that a model gets to read."""
_MOST_RECENT: Final = 1_000
_recent: Final[OrderedDict[str, Cause]] = OrderedDict()
"""Causes of the newest failures by their ids, until the turns that they happened in take them."""


def feedback(error: Exception, tool_name: str) -> dict[str, str]:
    """The answer to a failed call; the whole trace is in the log under the same id.

    A ToolError was written for the model and is told as it is. Of anything else the model learns
    that it happened: an exception's text may hold a password or somebody else's data.
    """
    error_id = new_id("err")
    meant_for_model = isinstance(error, ToolError)
    level = logging.INFO if meant_for_model else logging.ERROR
    logger.log(level, "Tool %r failed (%s)", tool_name, error_id, exc_info=error)
    text = str(error) if meant_for_model else f"The tool {tool_name} failed unexpectedly."
    if not meant_for_model:
        _recent[error_id] = cause_of(error)
        if len(_recent) > _MOST_RECENT:
            _recent.popitem(last=False)
    return {"error": storable_text(text[:MAX_TEXT]), "error_id": error_id}


def take_cause(error_id: str) -> Cause | None:
    """The cause of a failure of this process, once; None if it is not known here."""
    return _recent.pop(error_id, None)
