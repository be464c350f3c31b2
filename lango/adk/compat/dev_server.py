"""The server of ADK's web UI, and the files that it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from google.adk import cli
from google.adk.cli.dev_server import DevServer
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader

__all__ = ["PAGES", "BaseAgentLoader", "DevServer"]

PAGES: Final = Path(cli.__file__).parent / "browser"
"""The web UI's files in ADK's package."""
