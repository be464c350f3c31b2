"""Tools by name: "builtin:files", or "package.module:attribute" for custom ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from lango.core.named_code import did_you_mean, is_code_name, named_code
from lango.errors import InvalidToolError, UnknownToolError
from lango.tools.base import Tool
from lango.tools.function import tool
from lango.tools.options import Options, read_options

BUILTINS: Final = ("exec", "fetch", "files", "time")
_BUILTIN: Final = "builtin"
BUILTIN_PREFIX: Final = f"{_BUILTIN}:"


class ToolOptions(Options):
    """Overrides for a custom tool; None leaves a value unchanged."""

    name: str | None = None
    description: str | None = None
    idempotent: bool | None = None
    require_confirmation: bool | None = None
    timeout: float | None = None


def load_tools(spec: str, options: Mapping[str, Any] | None = None) -> list[Tool]:
    """The tools of a name."""
    prefix, _, name = spec.partition(":")
    if prefix == _BUILTIN:
        return _builtin(name, spec, options or {})
    changes = read_options(ToolOptions, spec, options or {}).model_dump(exclude_none=True)
    tools = _as_tools(find(spec), spec)
    if "name" in changes and len(tools) > 1:
        raise InvalidToolError(f"{spec} is {len(tools)} tools, which cannot share one name.")
    return [dataclasses.replace(loaded, **changes) for loaded in tools] if changes else tools


def find(spec: str) -> Any:
    """The object at "package.module:attribute", also from modules in the current folder."""
    if not is_code_name(spec):
        raise UnknownToolError(
            f"{spec!r} names no tool: write builtin:NAME (one of {', '.join(BUILTINS)}) or "
            "package.module:attribute."
        )
    return named_code(spec, UnknownToolError)


def _builtin(name: str, spec: str, options: Mapping[str, Any]) -> list[Tool]:
    match name:
        case "exec":
            from lango.tools.builtin.exec import ExecOptions, exec_tools

            return exec_tools(read_options(ExecOptions, spec, options))
        case "fetch":
            from lango.tools.builtin.fetch import FetchOptions, fetch_tools

            return fetch_tools(read_options(FetchOptions, spec, options))
        case "files":
            from lango.tools.builtin.files import FilesOptions, files_tools

            return files_tools(read_options(FilesOptions, spec, options))
        case "time":
            from lango.tools.builtin.time import TimeOptions, time_tools

            return time_tools(read_options(TimeOptions, spec, options))
        case _:
            names = ", ".join(f"{_BUILTIN}:{builtin}" for builtin in BUILTINS)
            raise UnknownToolError(
                f"There is no {spec}; there are {names}.{did_you_mean(name, BUILTINS)}"
            )


def _as_tools(target: Any, spec: str) -> list[Tool]:
    if isinstance(target, Tool):
        return [target]
    if isinstance(target, list | tuple):
        items = cast("list[Any]", target)
        return [loaded for item in items for loaded in _as_tools(item, spec)]
    if callable(target) and not isinstance(target, type):
        return [tool(cast("Callable[..., Any]", target))]
    raise InvalidToolError(
        f"{spec} is {type(target).__name__}: a tool is a typed function, a lango.Tool, or a list "
        "of those."
    )
