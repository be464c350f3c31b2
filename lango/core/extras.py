"""The extras of the package: their dependencies, and the command that installs an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "anthropic": ("anthropic",),
    "mcp": ("mcp",),
    "nats": ("nats",),
    "openai": ("openai",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    # google-adk brings most of these; only httptools is the extra's own.
    "server": ("fastapi", "httptools", "joserfc", "uvicorn"),
    "temporal": ("temporalio",),
}
"""The required packages, by extra."""


def is_installed(extra: str) -> bool:
    """Whether all packages of the extra are installed. Imports none of them."""
    return all(find_spec(package) is not None for package in PACKAGES[extra])


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "lango-adk[{extra}]"'
