"""`lango` as a process of its own, to be looked at, signalled and killed while it runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from uuid import uuid4

from tests.cli.terminal import LANGO

PATIENCE = 300.0  # seconds: a process that starts beside many others needs a while


class Running:
    """One command; it is killed at the end, if it still runs."""

    def __init__(
        self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._paths = [folder / f"{name}-{uuid4().hex[:8]}" for name in ("out", "err")]
        out, err = (path.open("w") for path in self._paths)
        with out, err:
            self.process = subprocess.Popen(
                [LANGO, *arguments],
                cwd=folder,
                env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it with kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE)

    @property
    def out(self) -> str:
        return self._paths[0].read_text()

    @property
    def err(self) -> str:
        return self._paths[1].read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has said something, on either of its outputs."""
        until = time.monotonic() + PATIENCE
        while True:
            has_ended = self.process.poll() is not None  # before reading: its last words count
            if text in self.out + self.err:
                return
            assert not has_ended, f"it ended: {self.out!r} {self.err!r}"
            assert time.monotonic() < until, f"no {text!r} in {self.out!r} and {self.err!r}"
            time.sleep(0.02)  # a file sends no event when it grows

    def end(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE)


def lango(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as its own process: a project's modules are imported once per process."""
    return subprocess.run(
        [LANGO, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
