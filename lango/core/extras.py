"""The extras of the package: their dependencies, and the command that installs an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "anthropic": ("anthropic",),
    "mcp": ("mcp",),
    "metrics": ("prometheus_client",),
    "nats": ("nats",),
    "objects": ("obstore",),
    "openai": ("openai",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    # google-adk brings most of these; only httptools is the extra's own.
    "server": ("fastapi", "httptools", "joserfc", "uvicorn"),
    "telemetry": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "temporal": ("temporalio",),
}
"""The required packages, by extra."""


def is_installed(extra: str) -> bool:
    """Whether all packages of the extra are installed. Imports none of them."""
    return all(map(_is_there, PACKAGES[extra]))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is a part of
        return False


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "lango-adk[{extra}]"'


def advice(error: BaseException | None) -> str:
    """A sentence with that command, if a package of an extra could not be imported; else empty."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            for extra, packages in PACKAGES.items():
                if package in packages and not is_installed(extra):
                    return f"Install it: {install(extra)}."
        error = error.__cause__ or error.__context__
    return ""
