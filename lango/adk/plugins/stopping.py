"""Ends a turn from a plugin with an error that ADK does not wrap."""

from __future__ import annotations

from google.adk.models.llm_response import LlmResponse
from pydantic import ConfigDict, PrivateAttr

from lango.errors import LangoError


class StopResponse(LlmResponse):
    """Returned by `before_model_callback` to end the turn instead of calling the model.

    ADK wraps what a plugin raises in a RuntimeError. But it tests the truth of a plugin's response
    outside of that wrapping, and there `__bool__` raises the error. Without that test, the error
    code would still end the turn.
    """

    # Few turns are stopped: pydantic builds the validator with the first instance.
    model_config = ConfigDict(defer_build=True)

    _error: LangoError = PrivateAttr()

    def __init__(self, error: LangoError) -> None:
        super().__init__(error_code=type(error).__name__, error_message=str(error))
        self._error = error

    def __bool__(self) -> bool:
        raise self._error
