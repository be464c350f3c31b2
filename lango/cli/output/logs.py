"""What the log prints on standard error: nothing, warnings, a worker's turns, or everything."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from enum import Enum
from typing import Annotated, Any, Final

import typer

from lango.core.current import WithRequestId
from lango.telemetry.logs import JsonFormatter

_PLAIN: Final = "%(levelname)s %(name)s: %(request)s%(message)s"
_DATED: Final = f"%(asctime)s {_PLAIN}"
_SERVERS: Final = ("lango.adk.mcp", "lango.adk.openapi")
_TOOLSETS: Final = "google_adk.google.adk.agents.llm_agent"
"""ADK's logger for toolsets that cannot be loaded: all that it logs as an error."""
_SETTINGS: Final = "lango.config.load"
_TURNS: Final = "lango.turns.attempt"
_ACCESS: Final = "lango.access"
_PROCESS: Final = "lango.process"
VERBOSE: Final = typer.Option("--verbose", "-v", help="Show the log on standard error.")


class LogFormat(Enum):
    """How a process writes its log."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        help="How the log is written; by default what the settings say (`log_format`).",
        show_default=False,
    ),
]


class _Advising(logging.Formatter):
    """The message and the next step, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return f"{record.getMessage().rstrip('.')}. `lango doctor` tries it again."


class _Once(logging.Filter):
    """Lets each message pass once: a command may load its settings several times."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is new."""
        is_new = record.getMessage() not in self._passed
        self._passed.add(record.getMessage())
        return is_new


def log_all() -> None:
    """Show everything: `--verbose` was given."""
    _configure(logging.INFO, _PLAIN)


def log_nothing() -> None:
    """Show nothing but ignored variables: the command prints what else a person can act on."""
    logging.getLogger().addHandler(logging.NullHandler())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("lango: %(message)s"))
    handler.addFilter(_Once())
    logging.getLogger(_SETTINGS).handlers = [handler]


def log_warnings(*, turns: bool = False) -> None:
    """Show warnings and errors, for long-running processes; with `turns`, also each turn."""
    _configure(min(logging.getLogger().level, logging.WARNING), _DATED)
    if turns:
        logging.getLogger(_TURNS).setLevel(logging.INFO)


def log_as(log_format: LogFormat | None, setting: str = LogFormat.TEXT.value) -> None:
    """Write the log in the format of the option, else in that of the setting.

    JSON is every line: also Python's warnings, and what `say` announces.
    """
    if (log_format or LogFormat(setting)) is LogFormat.TEXT:
        return
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    logging.getLogger(_PROCESS).setLevel(logging.INFO)


def say(*lines: str) -> None:
    """Announce something about the process on standard error: as text, or as JSON in its log."""
    announced = logging.getLogger(_PROCESS)
    for line in lines:
        if announced.isEnabledFor(logging.INFO):
            announced.info("%s", line)
        else:
            typer.echo(line, err=True)


def log_access(*, turns: bool) -> None:
    """Show a line for each request that the server has answered; with `turns`, also each turn."""
    logging.getLogger(_ACCESS).setLevel(logging.INFO)
    if turns:
        logging.getLogger(_TURNS).setLevel(logging.INFO)


def _configure(level: int, form: str) -> None:
    logging.basicConfig(level=level, format=form, force=True)
    logging.getLogger(_SETTINGS).handlers = []  # else it would print its warnings twice
    for handler in logging.getLogger().handlers:
        handler.addFilter(WithRequestId())


def log_servers() -> None:
    """Show, even without -v, which MCP servers and OpenAPI documents cannot be used.

    Servers of ADK's own toolsets, too: ADK only logs that the agent runs without these tools.
    """
    if not logging.getLogger().isEnabledFor(logging.INFO):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        for name in _SERVERS:
            logging.getLogger(name).handlers = [handler]
        of_adk = logging.StreamHandler()
        of_adk.setLevel(logging.ERROR)
        of_adk.setFormatter(_Advising())
        of_adk.addFilter(_Once())
        logging.getLogger(_TOOLSETS).handlers = [of_adk]


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
