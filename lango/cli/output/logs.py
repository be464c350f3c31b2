"""What the log prints on standard error: nothing, warnings, a worker's turns, or everything."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from typing import Any, Final

import typer

from lango.core.request_ids import WithRequestId

_PLAIN: Final = "%(levelname)s %(name)s: %(request)s%(message)s"
_DATED: Final = f"%(asctime)s {_PLAIN}"
_SERVERS: Final = "lango.adk.mcp.toolset"
_TURNS: Final = "lango.turns.attempt"
_ACCESS: Final = "lango.access"
VERBOSE: Final = typer.Option("--verbose", "-v", help="Show the log on standard error.")


def log_all() -> None:
    """Show everything: `--verbose` was given."""
    _configure(logging.INFO, _PLAIN)


def log_nothing() -> None:
    """Show nothing: the command itself prints what a person can act on."""
    logging.getLogger().addHandler(logging.NullHandler())


def log_warnings(*, turns: bool = False) -> None:
    """Show warnings and errors, for long-running processes; with `turns`, also each turn."""
    _configure(min(logging.getLogger().level, logging.WARNING), _DATED)
    if turns:
        logging.getLogger(_TURNS).setLevel(logging.INFO)


def log_access() -> None:
    """Show a line for each request that the server has answered."""
    logging.getLogger(_ACCESS).setLevel(logging.INFO)


def _configure(level: int, form: str) -> None:
    logging.basicConfig(level=level, format=form, force=True)
    for handler in logging.getLogger().handlers:
        handler.addFilter(WithRequestId())


def log_servers() -> None:
    """Show, even without -v, when an MCP server is unreachable or misconfigured."""
    if not logging.getLogger().isEnabledFor(logging.INFO):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logging.getLogger(_SERVERS).handlers = [handler]


def with_verbose(command: Any) -> Any:
    """The root command; its -v is also accepted after the name of every subcommand."""
    [verbose] = [option for option in command.params if option.name == "verbose"]
    below = copy(verbose)
    below.expose_value, below.callback = False, _on_verbose
    for subcommand in _below(command):
        subcommand.params.append(below)
    return command


def _below(command: Any) -> Iterator[Any]:
    for subcommand in getattr(command, "commands", {}).values():
        yield subcommand
        yield from _below(subcommand)


def _on_verbose(context: Any, parameter: Any, value: bool) -> None:
    del context, parameter
    if value:
        log_all()
