"""The kill sweep itself: it finds what is wrong, and nothing else."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from subprocess import Popen

import pytest
from google.adk.agents import LlmAgent

from faults.recovery.kill_shapes import agent, tool
from lango.testing.kills import kill_sweep


def clerk() -> LlmAgent:
    return agent("root", [("t1", {"k": "a"})], "done", tools=[tool("t1", idempotent=True)])


def forgetful() -> LlmAgent:
    """An agent whose history depends on the process that it runs in."""

    def where() -> dict[str, int]:
        """Say which process this is."""
        return {"process": os.getpid()}

    return agent("root", [("where", {})], "done", tools=[where])


@pytest.mark.parametrize("freezes", [0.0, 1.0])
def test_an_agent_that_is_resumed_exactly_is_found_exact(sqlite_url: str, freezes: float) -> None:
    report = kill_sweep(clerk, ["TURN one"], sqlite_url, count=3, freezes=freezes, seed=5)
    assert report.wrong == []
    assert (report.trials, report.woken) == (3, 3 * freezes)
    assert {"append.before", "append.after", "turn.start", "turn.closed"} <= report.kinds


def test_a_worker_that_is_woken_asks_no_model(sqlite_url: str) -> None:
    kinds = sorted(kill_sweep(clerk, ["TURN one"], sqlite_url, count=0).kinds)
    first = kinds.index("model.start")
    report = kill_sweep(clerk, ["TURN one"], sqlite_url, count=1, first=first, freezes=1.0, seed=5)
    assert report.killed_at == {"model.start": 1}
    assert report.wrong == []


@contextmanager
def _continuing_the_group() -> Generator[None]:
    """Continue the stopped processes of this process's group, again and again.

    The kernel does so once the shell that started them has ended.
    """
    again = f"while kill -CONT -- -{os.getpgrp()}; do sleep 0.02; done"
    with Popen(["/bin/sh", "-c", again]) as shell:
        try:
            yield
        finally:
            shell.kill()


def test_frozen_processes_stay_frozen_when_the_shell_ends(sqlite_url: str) -> None:
    with _continuing_the_group():
        report = kill_sweep(clerk, ["TURN one"], sqlite_url, count=12, freezes=1.0, seed=5)
    assert (report.wrong, report.woken) == ([], 12)


def test_an_agent_that_is_not_is_found_out(sqlite_url: str) -> None:
    report = kill_sweep(forgetful, ["TURN one"], sqlite_url, count=2, seed=5)
    assert not report.is_exact
    assert "the history differs" in str(report.wrong[0])
