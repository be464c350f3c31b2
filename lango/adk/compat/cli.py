"""The agent loader of ADK's command line, imported when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.adk.apps.app import App
    from google.adk.workflow import BaseNode


def load_agent(folder: Path) -> App | BaseNode:
    """The agent or App in a folder, found as ADK's own commands find it."""
    from google.adk.cli.utils.agent_loader import AgentLoader

    return AgentLoader(str(folder.parent)).load_agent(folder.name)


def load_dotenv(folder: Path) -> None:
    """Read the `.env` of an agent's folder, or of a folder above it."""
    from google.adk.cli.utils.envs import load_dotenv_for_agent

    load_dotenv_for_agent(folder.name, str(folder.parent))
