"""ADK's own web UI on lango's agents, sessions, artifacts and memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.in_memory_credential_service import (
    InMemoryCredentialService,
)
from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager
from google.adk.evaluation.local_eval_sets_manager import LocalEvalSetsManager
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.sessions.base_session_service import BaseSessionService

from lango.adk.compat.dev_server import PAGES, BaseAgentLoader, DevServer


class LoadedApps(BaseAgentLoader):
    """Gives ADK's server the loaded apps, and no others."""

    def __init__(self, apps: Mapping[str, App]) -> None:
        self._apps = apps

    def load_agent(self, agent_name: str) -> App:
        """An app by its name; if there is none, ValueError, which ADK answers with a 404."""
        if agent_name not in self._apps:
            raise ValueError(f"There is no app {agent_name}.")
        return self._apps[agent_name]

    def list_agents(self) -> list[str]:
        """The names of the apps."""
        return sorted(self._apps)


def web_app(
    apps: Mapping[str, App],
    sessions: BaseSessionService,
    artifacts: BaseArtifactService,
    memory: BaseMemoryService,
    *,
    folder: str,
    host: str,
) -> Any:
    """ADK's development server as an ASGI application.

    `folder` must be empty: ADK looks there for files beside agents, and may write some. On a
    loopback `host` the server refuses requests for other hosts and from other origins.
    """
    for name in apps:
        (Path(folder) / name).mkdir()  # ADK warns about an app without a folder
    with warnings.catch_warnings():  # it is experimental, so lango pins ADK
        warnings.simplefilter("ignore", UserWarning)
        credentials = InMemoryCredentialService()
    server = DevServer(
        agent_loader=LoadedApps(apps),
        session_service=sessions,
        artifact_service=artifacts,
        memory_service=memory,
        credential_service=credentials,
        eval_sets_manager=LocalEvalSetsManager(agents_dir=folder),
        eval_set_results_manager=LocalEvalSetResultsManager(agents_dir=folder),
        agents_dir=folder,
    )
    return server.get_fast_api_app(web_assets_dir=str(PAGES), bind_host=host)
