"""Importing code by name, "package.module:attribute", for settings and command lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from types import ModuleType
from typing import Any

from lango.core.extras import advice

Problem = Callable[[str], Exception]
"""Creates the error to raise from a message; the caller chooses its class."""


def is_code_name(text: str) -> bool:
    """Whether a text has the form "package.module:attribute"."""
    module, colon, attribute = text.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def named_code(name: str, problem: Problem, *, usual: Sequence[str] = ()) -> Any:
    """Import the named object; modules in the working directory take precedence.

    `usual` are the attributes to try if the name is only a module.
    """
    module_name, _, attribute = name.partition(":")
    module = _module(module_name, name, problem)
    for path in [attribute] if attribute else usual:
        try:
            return reduce(getattr, path.split("."), module)
        except AttributeError:
            continue
    if not attribute and usual:
        raise problem(f"{name} has neither {' nor '.join(usual)}: name it, as {name}:NAME.")
    names = [variable for variable in vars(module) if not variable.startswith("_")]
    raise problem(f"{name}: {module_name} has no {attribute}.{did_you_mean(attribute, names)}")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """A sentence that suggests similar names; empty if there are none."""
    near = get_close_matches(name, names, 3, 0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _module(module: str, name: str, problem: Problem) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if (module + ".").startswith(missing + "."):
            reason = f"there is no module {missing}: is its folder the current one, or installed?"
        else:
            reason = f"{module} needs {missing}, which is not installed. {advice(error)}".rstrip()
        raise problem(f"{name}: {reason}") from error
    except Exception as error:
        raise problem(f"{name}: importing {module} failed: {error!r}.") from error
