"""Checks for missing extras before a command imports ADK; errors name the `pip install`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lango.cli.options import store_flags
from lango.core.extras import install, is_installed
from lango.errors import ConfigError, MissingExtraError, UnknownModelError, UnsupportedUrlError
from lango.telemetry.metrics.switch import metrics

if TYPE_CHECKING:
    from pathlib import Path

    from lango.config.apps import AgentSettings
    from lango.config.load import LoadedSettings
    from lango.config.settings import Settings


def checked_settings(
    url: str | None, config: Path | None, names: Sequence[str] = ()
) -> LoadedSettings:
    """The settings of a command; raises if an extra that these apps need is missing."""
    from lango.config.load import load

    loaded = load(config, store_flags(url))
    require_extras(loaded.settings, names)
    return loaded


def require_server() -> None:
    """ConfigError if the packages of a server are not installed."""
    if not is_installed("server"):
        raise ConfigError(f"An HTTP server needs more packages: {install('server')}")


def measure(settings: Settings) -> None:
    """Turn metrics on, if the settings say so; ConfigError without the package they need."""
    if settings.metrics.enabled:
        metrics.turn_on()


def require_extras(settings: Settings, names: Sequence[str] = ()) -> None:
    """Raise if the store or these apps (all if none is named) need a missing extra.

    The models of agents defined in code are unknown until that code is imported.
    """
    _require_driver(settings.store.url.get_secret_value())
    if settings.files.objects is not None and not is_installed("objects"):
        raise ConfigError(f"files.objects needs obstore: {install('objects')}")
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
        except UnknownModelError:  # building the agent reports it, with the known names
            continue
        if extra is not None and not is_installed(extra):
            raise MissingExtraError(
                f"The model {model} of the app {app} needs an SDK: {install(extra)}"
            )
    if agent.mcp and not is_installed("mcp"):
        raise MissingExtraError(f"The MCP server {agent.mcp[0]!r} needs an SDK: {install('mcp')}")
