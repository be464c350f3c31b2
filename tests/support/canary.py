"""Fails with one plain sentence when a vendor no longer has a private part that lango uses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import pytest


@dataclass(frozen=True, slots=True)
class Canary:
    """Checks the private parts of a vendor that one file of lango uses."""

    vendor: str
    package: str
    file: str
    use: str

    @classmethod
    def of_adk(cls, file: str, use: str) -> Self:
        """The canary of a file in `lango/adk/compat`."""
        return cls("ADK", "google.adk", f"lango/adk/compat/{file}", use)

    def part(self, module: str, name: str = "") -> Any:
        """A part by its module and dotted name; the test fails if it is not there."""
        path = f"{self.package}.{module}".rstrip(".")
        try:
            found: Any = import_module(path)
        except ImportError:
            pytest.fail(self.sentence("package", f"the module {path}"))
        owner = path
        for each in name.split(".") if name else ():
            if not _has(found, each):
                pytest.fail(self.sentence(owner, each))
            found, owner = getattr(found, each, None), f"{owner}.{each}"
        return found

    def takes(self, function: Callable[..., Any], *parameters: str) -> None:
        """Fail unless a function has these parameters, in this order, and requires no others."""
        known = inspect.signature(function).parameters.values()
        needed = [
            each.name for each in known if each.name in parameters or each.default is each.empty
        ]
        if needed != list(parameters):
            listed = ", ".join(parameters)
            pytest.fail(self.sentence(_named(function), f"exactly the parameters {listed}"))

    def contains(self, owner: Any, *texts: str) -> None:
        """Fail unless the source of a function, class or module contains these texts."""
        source = inspect.getsource(owner)
        for text in texts:
            if text not in source:
                pytest.fail(self.sentence(_named(owner), f"`{text}` in its source"))

    def check(self, holds: bool, owner: str, part: str) -> None:
        """Fail unless a condition holds."""
        if not holds:
            pytest.fail(self.sentence(owner, part))

    def sentence(self, owner: str, part: str) -> str:
        """The message of a failure."""
        return (
            f"{self.vendor}'s {owner} no longer has {part}; lango uses it for {self.use}; "
            f"see {self.file}"
        )


def _named(owner: Any) -> str:
    return getattr(owner, "__qualname__", owner.__name__)


def _has(owner: Any, name: str) -> bool:
    private: dict[str, Any] = getattr(owner, "__private_attributes__", {})
    return hasattr(owner, name) or name in private
