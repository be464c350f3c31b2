"""ADK code by its name: "package.module:attribute" becomes the agent, App or Workflow it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeGuard, cast

from google.adk.apps.app import App
from google.adk.workflow import BaseNode

from lango.core.named_code import named_code
from lango.errors import AppLoadError

USUAL_NAMES: Final = ("app", "root_agent")
"""What ADK's own tools look for in a module."""

Root = App | BaseNode
"""What can be run: an App, or an agent, or a Workflow."""


async def load_root(target: str) -> Root:
    """What the name stands for; a function is called for it. Modules here come first."""
    found = named_code(target, AppLoadError, usual=USUAL_NAMES)
    if not is_root(found) and callable(found):
        found = await _called(cast("Callable[[], Any]", found), target)
    if not is_root(found):
        raise AppLoadError(
            f"{target} is {type(found).__name__}; it must be an ADK agent, App or Workflow, or a "
            "function that returns one."
        )
    return found


def is_root(value: Any) -> TypeGuard[Root]:
    """Whether ADK can run it."""
    return isinstance(value, (App, BaseNode))


async def _called(make: Callable[[], Any], target: str) -> Any:
    try:
        made = make()
        return await made if inspect.isawaitable(made) else made
    except Exception as error:
        raise AppLoadError(f"{target}: calling it fails: {error!r}.") from error
