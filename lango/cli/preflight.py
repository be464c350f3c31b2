"""Extras that are missing: found before a command imports ADK, and named with `pip install`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lango.cli.options import store_flags
from lango.core.extras import install, is_installed
from lango.errors import ConfigError, MissingExtraError, UnknownModelError, UnsupportedUrlError

if TYPE_CHECKING:
    from pathlib import Path

    from lango.config.load import Loaded
    from lango.config.settings import AgentSettings, Settings


def checked_settings(url: str | None, config: Path | None, names: Sequence[str] = ()) -> Loaded:
    """The settings of a command, once the extras are there that these apps need."""
    from lango.config.load import load

    loaded = load(config, store_flags(url))
    require_extras(loaded.settings, names)
    return loaded


def require_server() -> None:
    """ConfigError if the packages of a server are not installed."""
    if not is_installed("server"):
        raise ConfigError(f"An HTTP server needs more packages: {install('server')}")


def require_extras(settings: Settings, names: Sequence[str] = ()) -> None:
    """Raise if the store or these apps, all if none is named, need an extra that is missing.

    The models of agents that code describes are not known before that code is imported.
    """
    _require_driver(settings.store.url.get_secret_value())
    for name in names or settings.apps:
        app = settings.apps.get(name)
        if app is not None and app.agent is not None:
            for agent in app.agent.family():
                _require_sdks(name, agent)


def _require_driver(url: str) -> None:
    if url.startswith("postgres") and not is_installed("postgres"):
        raise UnsupportedUrlError(f"PostgreSQL needs a driver: {install('postgres')}")


def _require_sdks(app: str, agent: AgentSettings) -> None:
    from lango.providers.registry import gateway_of

    for model in (agent.model, *agent.fallbacks):
        try:
            extra = gateway_of(model)[0].extra
        except UnknownModelError:  # which building the agent reports, with the names there are
            continue
        if extra is not None and not is_installed(extra):
            raise MissingExtraError(
                f"The model {model} of the app {app} needs an SDK: {install(extra)}"
            )
    if agent.mcp and not is_installed("mcp"):
        raise MissingExtraError(f"The MCP server {agent.mcp[0]!r} needs an SDK: {install('mcp')}")
