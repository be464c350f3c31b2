"""PostgreSQL servers for one trial: created in a temporary folder, restarted, removed."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OWNER: Final = "postgres"
"""The user that runs the server if we are root: PostgreSQL refuses to run as root."""
_LOG: Final = "log"
_START_WITHIN: Final = 120
_LOWEST_PORT: Final = 20_000
_PORTS: Final = 12_000
"""Up to where Linux begins to take ports for connections: 32768, by default."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://{_OWNER}@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> str:
        """What the server has logged."""
        return (self.folder / _LOG).read_text("utf-8")

    def restart(self) -> None:
        """Stop it in immediate mode and start it again; return when it accepts connections."""
        self._control("restart", "-m", "immediate")

    def start(self) -> None:
        """Create it and start it."""
        data = str(self.folder / "data")
        _call([str(self.programs / "initdb"), "-D", data, "-U", _OWNER, "-A", "trust", "--no-sync"])
        self._control("start")

    def stop(self) -> None:
        """Stop it in immediate mode, unless it has stopped before."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self._control("stop", "-m", "immediate")

    def follow(self, primary: Cluster) -> None:
        """Copy a primary and start as its hot standby, which streams every change."""
        server = f"host=127.0.0.1 port={primary.port} user={_OWNER}"
        copy = ["-D", str(self.folder / "data"), "-d", server]
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        _call([str(self.programs / "pg_basebackup"), *copy, *options])
        self._control("start")

    def wait_for_standby(self) -> None:
        """From now on, acknowledge a commit only after a standby has it."""
        for statement in (
            "alter system set synchronous_standby_names = '*'",
            "select pg_reload_conf()",
        ):
            _call([str(self.programs / "psql"), "-X", "-q", self.url, "-c", statement])

    def promote(self) -> None:
        """Promote this standby to primary; return when it accepts writes."""
        self._control("promote")

    def _control(self, action: str, *how: str) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        starts = action in ("start", "restart")
        start_options = ["-o", options, "-l", str(self.folder / _LOG)] if starts else []
        data = ["-D", str(self.folder / "data"), "-w", "-t", str(_START_WITHIN)]
        _call([str(self.programs / "pg_ctl"), action, *data, *how, *start_options])


@contextmanager
def own_cluster(parent: Path | None = None, *, programs: Path | None = None) -> Generator[Cluster]:
    """A PostgreSQL server for the caller alone; its data is in a temporary folder below `parent`.

    `programs` is the folder of PostgreSQL's programs (default: the newest that is installed).
    """
    with _new_cluster(parent, programs) as cluster:
        cluster.start()
        yield cluster


@contextmanager
def own_pair() -> Generator[tuple[Cluster, Cluster]]:
    """A primary for the caller alone, and its synchronous standby."""
    with own_cluster() as primary, _new_cluster() as standby:
        standby.follow(primary)
        primary.wait_for_standby()
        yield primary, standby


@contextmanager
def _new_cluster(parent: Path | None = None, programs: Path | None = None) -> Generator[Cluster]:
    """A server that is not created yet; it is stopped at the end."""
    programs = programs or _programs()
    with tempfile.TemporaryDirectory(prefix="lango-", dir=parent) as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, _OWNER)
        cluster = Cluster(programs, Path(folder), free_port())
        try:
            yield cluster
        finally:
            cluster.stop()


def _programs() -> Path:
    """The folder of PostgreSQL's programs, of the newest version."""
    found = shutil.which("pg_ctl")
    if found is not None and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not installed:
        raise FileNotFoundError("Install PostgreSQL's programs: initdb and pg_ctl.")
    return installed[-1].parent


def free_port() -> int:
    """A port on loopback that is free now, and that no connection is given as its own.

    The system takes the ports of connections from a range above these. A port from there could be
    in use by the time that a server binds it.
    """
    while True:
        port = _LOWEST_PORT + secrets.randbelow(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _call(command: Sequence[str]) -> None:
    owner = _OWNER if os.geteuid() == 0 else None
    done = subprocess.run(
        command, user=owner, group=owner, extra_groups=[] if owner else None, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.decode()}")
