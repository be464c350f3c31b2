"""Logs that outlive the processes that write them: one JSON object per line, added in one write."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Log:
    """A file to which lines are added."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, kind: str, **fields: Any) -> None:
        """Add a line."""
        line = {"kind": kind, "t": time.time(), **fields}
        os.write(self._descriptor, (json.dumps(line) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """All lines of a log; empty if it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
