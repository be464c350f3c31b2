"""Ending a turn from a plugin by an error that arrives as what it is."""

from __future__ import annotations

from google.adk.models.llm_response import LlmResponse
from pydantic import PrivateAttr

from lango.errors import LangoError


class Stop(LlmResponse):
    """What `before_model_callback` gives to end the turn instead of calling the model.

    ADK wraps what a plugin raises in a RuntimeError; but it asks each response that a plugin
    gives whether it is one, outside of that wrapping, and this one's answer is the error. Were it
    never asked, its error code would end the turn all the same.
    """

    _error: LangoError = PrivateAttr()

    def __init__(self, error: LangoError) -> None:
        super().__init__(error_code=type(error).__name__, error_message=str(error))
        self._error = error

    def __bool__(self) -> bool:
        raise self._error
