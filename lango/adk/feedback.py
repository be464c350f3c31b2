"""What a model is told of a tool that failed: enough to go on, nothing of the inside."""

from __future__ import annotations

import logging
from typing import Final

from lango.core.ids import new_id
from lango.core.values import storable_text
from lango.errors import ToolError

logger = logging.getLogger(__name__)

MAX_TEXT: Final = 2_000
"""Characters of an error's own text that a model gets to read."""


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
    return {"error": storable_text(text[:MAX_TEXT]), "error_id": error_id}
