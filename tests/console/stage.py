"""A server with agents for the console to show."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.processes import Running

SUPPORT, RESEARCH = "support", "research"
TEAM, PAIR, CLERK, COURIER, CODER = "team", "pair", "clerk", "courier", "coder"
GATE = "go"
"""A story stops in the middle until there is a file of this name."""
DELAY = "STAGE_DELAY"
"""Seconds between two words of the model."""
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
_ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = """\
apps:
  support:
    load: tests.console.agents:support
    memory: true
  research: tests.console.agents:research
  team: tests.console.teams:team
  pair: tests.console.teams:pair
  clerk: tests.console.teams:clerk
  courier: tests.console.teams:courier
  coder: tests.console.teams:coder
store:
  url: '{url}'
"""


@dataclass(frozen=True)
class Stage:
    """The folder of the project, and the server that runs in it."""

    folder: Path
    server: Running

    @property
    def address(self) -> str:
        """Where the console is, with the key for this run."""
        return self._found(r"http://127\.0\.0\.1:\d+/console/#key=\S+")

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._found(r"http://127\.0\.0\.1:\d+")

    @property
    def key(self) -> str:
        """The key for this run."""
        return self.address.partition("#key=")[2]

    def open_gate(self) -> None:
        """Let stories go on."""
        (self.folder / GATE).touch()

    def close_gate(self) -> None:
        """Stop stories in the middle."""
        (self.folder / GATE).unlink(missing_ok=True)

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, self.server.err)
        assert found, self.server.err
        return found[0]


@contextmanager
def staged(folder: Path, url: str, *, delay: float = 0.01) -> Generator[Stage]:
    """A server on a database that has no keys of its own, so that it prints one."""
    (folder / "lango.yaml").write_text(_SETTINGS.format(url=url))
    paths = [os.environ.get("PYTHONPATH", ""), str(_ROOT)]
    environment = {DELAY: str(delay), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with Running(folder, "serve", "--port", "0", environment=environment) as server:
        server.wait_for("/console/#key=")
        yield Stage(folder, server)
