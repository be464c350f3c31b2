"""Rows that start workers, also on Temporal and on the buses: a few trials of each.

Each row is a command of its own: a fork server passes its first environment, which names the engine
and the bus, to all processes that a program starts.
"""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        "READ --count 30 --engine temporal",
        "DISPATCH --count 4 --engine temporal",
        "READ --count 30 --bus nats",
        "READ --count 30 --bus redis",
    ],
)
def test_a_row_on_a_carrier(arguments: str) -> None:
    command = [sys.executable, "-m", "faults", "--seed", "1", "--only", *arguments.split()]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
