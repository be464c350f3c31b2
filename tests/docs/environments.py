"""For tests that follow a page: a free address, and the environment of a reader."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from faults.database.own_cluster import free_port
from tests.docs.pages import ROOT

ADDRESS: Final = "127.0.0.1:8000"
"""Where pages have their server."""
_OURS: Final = ("LANGO_", "PYTHON", "UV_", "VIRTUAL_ENV")


def free_address() -> str:
    """A free address on loopback."""
    return f"127.0.0.1:{free_port()}"


def newcomer(dist: Path, address: str) -> dict[str, str]:
    """The environment of a person who has installed nothing yet.

    `pip install` finds the package in `dist`, and takes the locked versions of what it needs.
    """
    constraint = str(ROOT / "requirements/dev.txt")
    return _plain(address) | {"UV_FIND_LINKS": str(dist), "UV_CONSTRAINT": constraint}


def reader(address: str) -> dict[str, str]:
    """The environment of a person who has installed this checkout."""
    plain = _plain(address)
    return plain | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{plain['PATH']}"}


def _plain(address: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    port = address.rpartition(":")[2]
    return kept | {"COLUMNS": "200", "NO_COLOR": "1", "LANGO_SERVER__PORT": port}
