"""The built-in tool `exec`: programs from an allow-list, in a sandbox."""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import shutil
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

from pydantic import Field

from lango.core.values import JsonObject
from lango.errors import SandboxError, ToolError
from lango.tools.base import Tool
from lango.tools.builtin.processes import Limits, Output, running, set_limits
from lango.tools.builtin.sandbox import WORKSPACE, Sandbox, sandboxed
from lango.tools.function import tool
from lango.tools.options import Folder, Options, Root

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
GRACE: Final = 10.0
"""Seconds for starting and ending, in addition to the program's timeout."""
MAX_ARGUMENTS: Final = 100_000
_MIB: Final = 1024 * 1024


class ExecOptions(Options):
    """The tool's options."""

    root: Root
    allow: tuple[str, ...] = Field(min_length=1)
    """Programs, each with its required first arguments: `ls`, `git log`."""
    timeout: float = Field(default=60.0, gt=0)
    max_output: int = Field(default=64 * 1024, ge=1)
    """Bytes kept of each of stdout and stderr."""
    memory_mb: int = Field(default=1024, ge=1)
    file_mb: int = Field(default=64, ge=1)
    """The maximum size of a file it writes, and the size of /tmp."""
    processes: int = Field(default=64, ge=1)
    read: tuple[Folder, ...] = ()
    """Folders that it can read in addition to the system's programs."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    unsandboxed: bool = False


def exec_tools(options: ExecOptions) -> list[Tool]:
    """The tool `run_command`."""
    commands = Commands(options)
    allowed = "; ".join(options.allow)
    description = (
        f"Run a program and wait for it. There is no shell: give the program and its arguments as "
        f"a list. These may be run, with more arguments after them: {allowed}."
    )
    decorate = tool(
        name="run_command",
        description=description,
        require_confirmation=True,
        timeout=options.timeout + GRACE,
    )
    return [decorate(commands.run)]


class Commands:
    """Runs the allowed programs, in a sandbox unless that is off."""

    def __init__(self, options: ExecOptions) -> None:
        self._options = options
        self._allowed = [shlex.split(entry) for entry in options.allow]
        self._sandbox = None if options.unsandboxed else _sandbox(options)

    async def run(
        self,
        argv: Annotated[
            list[str], Field(min_length=1, description="The program and its arguments.")
        ],
    ) -> JsonObject:
        """Run a program; returns its output and its exit code."""
        self._check(argv)
        if self._sandbox is not None:
            return await self._run_in(self._sandbox, argv)
        try:
            return await self._run_bare(argv)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            raise ToolError(f"{argv[0]} is not there, or cannot be run.") from None

    def _check(self, argv: Sequence[str]) -> None:
        if not any(list(argv[: len(entry)]) == entry for entry in self._allowed):
            allowed = "; ".join(self._options.allow)
            raise ToolError(f"{shlex.join(argv)[:200]} is not allowed. Allowed are: {allowed}.")
        try:
            encoded = os.fsencode(" ".join(argv))
        except UnicodeEncodeError:
            raise ToolError("The arguments are no text.") from None
        if len(encoded) > MAX_ARGUMENTS or b"\x00" in encoded:
            raise ToolError("The arguments are too long, or hold a NUL.")

    async def _run_in(self, sandbox: Sandbox, argv: Sequence[str]) -> JsonObject:
        env = {"PATH": PATH, "HOME": WORKSPACE, "LANG": "C.UTF-8", **self._options.env}
        async with sandboxed(sandbox, argv, env, self._limits()) as program:
            stdout, stderr, result = await self._follow(program.process)
            if "timed_out" not in result:
                program.check_ran(argv[0], stderr.text)
            return _reported(result, stdout, stderr)

    async def _run_bare(self, argv: Sequence[str]) -> JsonObject:
        root = self._options.root
        env = {"PATH": PATH, "HOME": str(root), "LANG": "C.UTF-8", **self._options.env}
        async with running(argv, env, folder=root) as process:
            limits = dict(self._limits())
            del limits[resource.RLIMIT_NPROC]  # without a sandbox it counts all of the user's
            with suppress(ProcessLookupError):  # it has already ended
                set_limits(process.pid, limits)
            stdout, stderr, result = await self._follow(process)
            return _reported(result, stdout, stderr)

    async def _follow(self, process: Process) -> tuple[Output, Output, JsonObject]:
        """Collect the output until the program ends or times out."""
        stdout, stderr = Output(self._options.max_output), Output(self._options.max_output)
        try:
            async with asyncio.timeout(self._options.timeout):
                await asyncio.gather(
                    stdout.follow(process.stdout), stderr.follow(process.stderr), process.wait()
                )
        except TimeoutError:
            return stdout, stderr, {"timed_out": True, "seconds": self._options.timeout}
        return stdout, stderr, {"exit_code": process.returncode}

    def _limits(self) -> Limits:
        return {
            resource.RLIMIT_AS: self._options.memory_mb * _MIB,
            resource.RLIMIT_FSIZE: self._options.file_mb * _MIB,
            resource.RLIMIT_NPROC: self._options.processes,
            resource.RLIMIT_CPU: int(self._options.timeout) + 1,
            resource.RLIMIT_NOFILE: 256,
            resource.RLIMIT_CORE: 0,
        }


def _sandbox(options: ExecOptions) -> Sandbox:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError(
            "builtin:exec runs programs in a sandbox of bubblewrap, which is not installed: "
            "install it (`apt install bubblewrap`), or set `unsandboxed: true` to let them do "
            "whatever this process can."
        )
    return Sandbox(bwrap, options.root, options.read, options.file_mb * _MIB)


def _reported(result: JsonObject, stdout: Output, stderr: Output) -> JsonObject:
    report: JsonObject = {**result, "stdout": stdout.text, "stderr": stderr.text}
    return report | {"truncated": True} if stdout.truncated or stderr.truncated else report
