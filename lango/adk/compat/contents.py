"""The function by which ADK places the newest result directly after its call."""

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.adk.events.event import Event
from google.adk.flows.llm_flows.context import _contents

Arrange = Callable[[list[Event]], list[Event]]
"""Arranges the events of a session for a model."""

arrange: Final[Arrange] = _contents._rearrange_events_for_latest_function_response
"""ADK's own function."""


def replace_arrange(ours: Arrange) -> None:
    """Patch ADK's function (idempotent)."""
    _contents._rearrange_events_for_latest_function_response = ours
