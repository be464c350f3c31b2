"""Loads ADK code by name: an agent, App or Workflow.

"package.module:attribute" names it exactly. The folder or package of an agent works as with
`adk run`: ADK's own loader finds `app` or `root_agent` in it, in its module `agent`, or in
`root_agent.yaml`. Either way the agent's `.env` is read first, as ADK reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

from google.adk.apps.app import App
from google.adk.workflow import BaseNode

from lango.adk.compat.cli import load_agent, load_dotenv
from lango.core.extras import advice
from lango.core.named_code import named_code
from lango.errors import AppLoadError

USUAL_NAMES: Final = ("app", "root_agent")
"""The names that ADK's own tools look for in a module."""

_MARKS: Final = ("agent.py", "root_agent.yaml")
_OF_AN_AGENT: Final = (*_MARKS, "__init__.py")

Root = App | BaseNode
"""What can be run: an App, an agent or a Workflow."""


async def load_root(target: str) -> Root:
    """Load what the name refers to; call it if it is a function. Local modules come first."""
    folder = agent_folder(target)
    if folder is not None:
        return _loaded_by_adk(folder, target)
    _read_dotenv(target)
    root = named_code(target, AppLoadError, usual=USUAL_NAMES)
    if not is_root(root) and callable(root):
        root = await _called(cast("Callable[[], Any]", root), target)
    if not is_root(root):
        raise AppLoadError(
            f"{target} is {type(root).__name__}; it must be an ADK agent, App or Workflow, or a "
            "function that returns one."
        )
    return root


def agent_folder(target: str) -> Path | None:
    """The folder of an agent that a path or package name refers to, if there is one."""
    if ":" in target:
        return None
    for path in (Path(target), Path(*target.split("."))):
        if any((path / name).is_file() for name in _OF_AN_AGENT):
            return path.resolve()
    return None


def agent_folders() -> list[str]:
    """The folders of agents in the current one, and `.` if it is one itself."""
    working_folder = Path()
    folders = (working_folder, *sorted(path for path in working_folder.iterdir() if path.is_dir()))
    return [str(path) for path in folders if any((path / name).is_file() for name in _MARKS)]


def folder_app_name(target: str, root: Root) -> str | None:
    """The app name of an agent named by its folder: the folder's name, as in ADK's own tools.

    None for roots with their own name: an App, and code named by its module.
    """
    folder = agent_folder(target)
    return None if folder is None or isinstance(root, App) else folder.name


def _loaded_by_adk(folder: Path, target: str) -> Root:
    try:
        return load_agent(folder)
    except Exception as error:
        reason = f"{target}: ADK cannot load it: {error}"
        advised = advice(error)
        raise AppLoadError(f"{reason.rstrip('.')}. {advised}" if advised else reason) from error


def _read_dotenv(target: str) -> None:
    """Read the `.env` of the package that a module is in, or of a folder above it."""
    *packages, _ = target.partition(":")[0].split(".")
    load_dotenv(Path(*packages).resolve())


def is_root(value: Any) -> TypeGuard[Root]:
    """Whether ADK can run the value."""
    return isinstance(value, (App, BaseNode))


async def _called(make: Callable[[], Any], target: str) -> Any:
    try:
        root = make()
        return await root if inspect.isawaitable(root) else root
    except Exception as error:
        raise AppLoadError(f"{target}: calling it fails: {error!r}.") from error
