"""A shell that follows a page: it runs the blocks, and waits for what the page says comes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.docs.pages import Block, blocks

PATIENCE: Final = 300.0  # seconds: what starts beside many others needs a while
ANYTHING: Final = "…"  # what a page writes for the part of a line that differs from run to run
EVENTS: Final = ("event: ", "data: ")
"""How the lines of an event stream begin."""
FILE: Final = re.compile(r"(?:#|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
CHANGED: Final = re.compile(r"--- (\S+)\n\+\+\+ \1\n")
_ENDED: Final = "[the block ended with {}]"


class Shell:
    """One bash. Whatever it started in the background is ended with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.heard = ""  # all that was printed
        self._folder = folder
        self._environment = dict(environment)
        self._begin = 0  # of what came since the last command was given

    async def __aenter__(self) -> Self:
        self._bash = await asyncio.create_subprocess_exec(
            *("bash", "--noprofile", "--norc"),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, failure: object, *_: object) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        assert self._bash.stdout
        self.heard += (await self._bash.stdout.read()).decode(errors="replace")
        await self._bash.wait()
        if failure is not None:
            print(self.heard)  # which pytest shows with what failed

    async def follow(self, page: Path, replacing: Mapping[str, str] | None = None) -> None:
        """Do what the page says: save its files, run its commands, see what it shows.

        `replacing` has what is another on this machine than on the page: an address, a database.
        """
        for block in blocks(page):
            text = block.text
            for shown, replacement in (replacing or {}).items():
                text = text.replace(shown, replacement)
            await self._step(Block(block.language, text))

    async def _step(self, block: Block) -> None:
        name = FILE.match(block.text)
        if name:
            path = self._folder / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.language == "diff":
            change(self._folder, block.text)
        elif block.language == "bash":
            await self.run(block.text)
        elif block.language == "text":
            await self.expect(block.text)

    async def run(self, command: str) -> None:
        """Run a command; what it puts into the background goes on."""
        self._begin = len(self.heard)
        assert self._bash.stdin
        self._bash.stdin.write(f'{command}\necho "{_ENDED.format("$?")}"\n'.encode())
        await self._bash.stdin.drain()
        await self._hear(re.escape(_ENDED).replace(r"\{\}", r"\d+"))
        assert _ENDED.format(0) in self.heard[self._begin :], self.heard

    async def expect(self, text: str) -> None:
        """Wait until these lines have come since the last command, in this order.

        A client prints the events of a stream, other processes the other lines: no order holds
        between the two.
        """
        for of_stream in (True, False):
            shown = (
                re.escape(line).replace(ANYTHING, ".*")
                for line in text.strip().splitlines()
                if line.startswith(EVENTS) == of_stream
            )
            await self._hear(".*".join(shown))

    async def _hear(self, pattern: str) -> None:
        assert self._bash.stdout
        while not re.search(pattern, self.heard[self._begin :], re.DOTALL):
            try:
                more = await asyncio.wait_for(self._bash.stdout.read(65536), PATIENCE)
            except TimeoutError:
                raise AssertionError(f"{pattern!r} never came: {self.heard}") from None
            assert more, f"the shell ended: {self.heard}"
            self.heard += more.decode(errors="replace")


def change(folder: Path, diff: str) -> None:
    """Replace the lines of a file that a diff takes out by those that it brings in."""
    name = CHANGED.match(diff)
    assert name, f"which file does this change? {diff}"
    lines = diff[name.end() :].splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in "- ")
    new = "".join(line[1:] for line in lines if line[0] in "+ ")
    path = folder / name[1]
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{old!r} is not in {name[1]}, or is there twice"
    path.write_text(text.replace(old, new), "utf-8")
