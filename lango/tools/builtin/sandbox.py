"""Runs a process in a bubblewrap sandbox that sees one folder and the system's programs.

Bubblewrap creates new namespaces: no network, no other processes, no other files. It blocks the
program until lango has set its limits. Setting them from outside needs no helper inside; setting
them after the namespaces exist makes them count only the sandbox's own processes.
"""

from __future__ import annotations

import json
import os
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lango.errors import SandboxError, ToolError
from lango.tools.builtin.processes import Limits, running, set_limits
from lango.tools.calling import in_thread

WORKSPACE: Final = "/workspace"
"""The path of the root inside the sandbox."""
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
NO_SUCH_PROGRAM: Final = "bwrap: execvp "
"""The first words of bubblewrap's error for a program that it could not start."""

# What programs need to find their libraries; nothing that reveals this machine's users.
_SETTINGS: Final = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_BARRIERS: Final = (
    *("--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL"),
    *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What programs in the sandbox can see."""

    bwrap: str
    root: Path
    readable: Sequence[Path] = ()
    temporary: int = 64 * 1024 * 1024
    """Size in bytes of /tmp and of /dev/shm, which are in memory and end with the program."""

    def arguments(self) -> Iterator[str]:
        """The arguments for bubblewrap."""
        yield from _BARRIERS
        for path in SYSTEM:
            yield from _system(path)
        for path in _SETTINGS:
            yield from ("--ro-bind-try", path, path)
        # Remounted read-only, because bubblewrap leaves it writable: root outside would be root
        # inside for /proc/sys, whose files belong to the machine and not to the sandbox.
        yield from ("--proc", "/proc", "--remount-ro", "/proc")
        yield from ("--dev", "/dev")
        for path in ("/dev/shm", "/tmp"):  # noqa: S108 - inside the sandbox
            yield from ("--size", str(self.temporary), "--tmpfs", path)
        yield from ("--remount-ro", "/dev")
        for folder in self.readable:
            yield from ("--ro-bind", str(folder), str(folder))
        yield from ("--bind", str(self.root), WORKSPACE, "--chdir", WORKSPACE)
        yield from ("--remount-ro", "/")


class Sandboxed:
    """A program in its sandbox."""

    def __init__(self, process: Process, status: Any) -> None:
        self.process = process
        self._status = status

    def check_ran(self, program: str, complaint: str) -> None:
        """After the process has ended: raise if bubblewrap failed, not the program."""
        os.set_blocking(self._status.fileno(), False)
        if b'"exit-code"' in (self._status.read() or b""):
            return
        if complaint.startswith(NO_SUCH_PROGRAM):
            raise ToolError(f"{program} is not there, or cannot be run.")
        raise SandboxError(_cannot(complaint))


@asynccontextmanager
async def sandboxed(
    sandbox: Sandbox, argv: Sequence[str], env: Mapping[str, str], limits: Limits
) -> AsyncGenerator[Sandboxed]:
    """A program running in a sandbox; both end with the block."""
    (status, status_end), (hold_end, hold) = _pipe(), _pipe()
    with status, status_end, hold_end, hold:
        ends = (status_end.fileno(), hold_end.fileno())
        channels = ("--json-status-fd", str(ends[0]), "--block-fd", str(ends[1]))
        command = [sandbox.bwrap, *sandbox.arguments(), *channels, "--", *argv]
        # Bubblewrap's environment is readable from inside, so it gets only the program's.
        async with running(command, env, pass_fds=ends) as process:
            status_end.close()
            hold_end.close()
            await _release(process, status, hold, limits)
            yield Sandboxed(process, status)


async def _release(process: Process, status: Any, hold: Any, limits: Limits) -> None:
    """Wait for the namespaces, set the limits, and start the program."""
    line = await in_thread(status.readline)
    try:
        set_limits(json.loads(line)["child-pid"], limits)
        hold.write(b"\n")
    except (OSError, ValueError) as error:  # bubblewrap has ended; stderr has the reason
        complaint = await process.stderr.read() if process.stderr else b""
        raise SandboxError(_cannot(complaint.decode(errors="replace"))) from error


def _cannot(complaint: str) -> str:
    reason = complaint.strip()[:300] or "it printed nothing"
    return (
        f"bubblewrap cannot make a sandbox here ({reason}). It must be version 0.8 or later and be "
        "allowed to make user namespaces."
    )


def _system(path: str) -> tuple[str, ...]:
    """A system folder as it is outside: a folder, a link to one, or absent."""
    if os.path.islink(path):
        return "--symlink", os.readlink(path), path
    return "--ro-bind-try", path, path


def _pipe() -> tuple[Any, Any]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0)
