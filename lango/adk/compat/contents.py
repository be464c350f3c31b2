"""How ADK places the newest result directly after its call, and what model summarises events."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events.event import Event
from google.adk.flows.llm_flows.context import _contents
from google.adk.models.base_llm import BaseLlm

Arrange = Callable[[list[Event]], list[Event]]
"""Arranges the events of a session for a model."""

arrange: Final[Arrange] = _contents._rearrange_events_for_latest_function_response
"""ADK's own function."""


def replace_arrange(replacement: Arrange) -> None:
    """Patch ADK's function (idempotent)."""
    _contents._rearrange_events_for_latest_function_response = replacement


def summary_model(summarizer: BaseEventsSummarizer) -> BaseLlm | None:
    """The model of ADK's own summariser; None for one of another class."""
    return summarizer._llm if isinstance(summarizer, LlmEventSummarizer) else None
