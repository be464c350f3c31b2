"""A PgBouncer in transaction mode for tests and measurements, on a free port of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url

from faults.database.own_cluster import free_port

PROGRAM_VARIABLE: Final = "LANGO_TEST_PGBOUNCER"
_STARTS_WITHIN: Final = 60.0
_UNPRIVILEGED: Final = "postgres"
"""The user that it runs as if we are root: it refuses to be."""

_CONFIGURATION: Final = """\
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
server_login_retry = 1
{more}
"""


def program() -> str | None:
    """The path of PgBouncer, if it is installed."""
    return shutil.which(os.environ.get(PROGRAM_VARIABLE, "pgbouncer"))


def version() -> tuple[int, ...]:
    """The version of PgBouncer."""
    command = [_required(), "--version"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(int(part) for part in process.stdout.split()[1].split(".") if part.isdecimal())


@contextmanager
def pgbouncer(
    server: str, *, pool_size: int = 10, port: int | None = None, more: str = ""
) -> Generator[int]:
    """The port of a new PgBouncer before the server of a URL; it ends with the block."""
    url, own_port = make_url(server), port or free_port()
    with tempfile.TemporaryDirectory(prefix="lango-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        users, configuration = Path(folder, "users.txt"), Path(folder, "pgbouncer.ini")
        users.write_text(f'"{url.username}" "{url.password or ""}"\n', encoding="utf-8")
        fields = {"host": url.host, "port": url.port or 5432, "own_port": own_port, "users": users}
        text = _CONFIGURATION.format(**fields, pool_size=pool_size, more=more)
        configuration.write_text(text, encoding="utf-8")
        user = _UNPRIVILEGED if os.getuid() == 0 else None
        command = [_required(), "--quiet", str(configuration)]
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen(command, stderr=log, stdout=log, user=user, group=user) as process,
        ):
            try:
                _wait_for(own_port, process, Path(folder, "log"))
                yield own_port
            finally:
                process.kill()


def _required() -> str:
    path = program()
    if path is None:
        raise RuntimeError("pgbouncer is not installed: apt-get install pgbouncer")
    return path


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < until:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"PgBouncer does not start: {log.read_text(errors='replace')}")


def require_pgbouncer() -> None:
    """Skip the test where PgBouncer is missing; fail it in CI."""
    if program() is None:
        reason = "PgBouncer is not installed: apt-get install pgbouncer"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
