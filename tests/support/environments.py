"""Environments of their own for what tests drive and lango's own must not have.

Each has the packages of a file in `requirements/`, and is made again when that file changes.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


class NoEnvironmentError(Exception):
    """The environment cannot be made here."""


def environment(name: str, *options: str) -> Path:
    """The folder of an environment with `requirements/NAME.txt`, installed if it is missing."""
    folder, requirements = ROOT / f".venv-{name}", ROOT / "requirements" / f"{name}.txt"
    mark = folder / "requirements.txt"
    with locked(name):
        if not mark.exists() or mark.read_bytes() != requirements.read_bytes():
            uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
            if uv is None:
                raise NoEnvironmentError("uv is not installed")
            _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
            install = (uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python")
            _run(*install, *options, "--require-hashes", "--requirement", requirements)
            shutil.copyfile(requirements, mark)
    return folder


@contextmanager
def locked(name: str) -> Generator[None]:
    """Let one process of the tests install at a time."""
    with (Path(tempfile.gettempdir()) / f"lango-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
    if done.returncode:
        raise NoEnvironmentError(done.stderr)
