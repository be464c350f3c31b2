"""A real terminal, driven by a test: tmux types the keys and reads the screen."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from uuid import uuid4

LANGO = str(Path(sys.executable).with_name("lango"))
PATIENCE = 300.0  # seconds: a process that starts beside many others needs a while


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = dict(environment or {})
        self._server = f"lango-{uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        variables = [part for item in self._environment.items() for part in ("-e", "=".join(item))]
        size = ("-x", "120", "-y", "50")
        self._tmux("new-session", "-d", *size, "-c", str(self._folder), *variables, "sh")
        self.type("PS1='$ '")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def lango(self, *arguments: str) -> None:
        """Start a command."""
        self.type(shlex.join([LANGO, *arguments]))

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press a key, by tmux's name for it: C-c."""
        self._tmux("send-keys", key)

    def kill(self) -> None:
        """Kill the command that runs, as a crash would."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        (command,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(command), signal.SIGKILL)

    def screen(self) -> str:
        """All that was printed, wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, text: str, *, times: int = 1) -> str:
        """The screen once it shows a text, so many times."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            screen = self.screen()
            if screen.count(text) >= times:
                return screen
            time.sleep(0.05)  # tmux sends no event when a screen changes
        raise AssertionError(f"no {text!r} within {PATIENCE:.0f} s on:\n{self.screen()}")

    def _tmux(self, *arguments: str) -> str:
        ran = subprocess.run(
            ["tmux", "-L", self._server, "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return ran.stdout
