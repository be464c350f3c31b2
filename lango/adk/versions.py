"""The version of ADK, and the versions whose turns are known to survive a crash."""

from __future__ import annotations

import os
from typing import Final

from google.adk.version import __version__

ADK_VERSION: Final = __version__
SWEPT: Final = frozenset({"2.13.0"})
"""The versions on which lango's kill sweep has passed (docs/versions.md)."""
_SWEEPING: Final = "ADK_SWEEP"
"""Names the version that `make sweep` tries at the moment."""


def version_problem() -> str | None:
    """Why turns on this version of ADK do not count as resumable; None if they do."""
    if ADK_VERSION in SWEPT or os.environ.get(_SWEEPING) == ADK_VERSION:
        return None
    return f"google-adk {ADK_VERSION} has not passed lango's kill sweep"
