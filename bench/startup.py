"""The start of lango's commands beside ADK's own: CPU time of processes, bytecode compiled."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from asyncio import to_thread
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGKILL
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.measures import run
from bench.report import Table
from bench.rounds import Sample, cpu, divide, estimate, interleave, wall
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDS: Final = 15
_QUICK_ROUNDS: Final = 5
_AT_MOST: Final = 1_200.0
_IMPORT: Final = "ADK's import alone"
_ADK_TURN: Final = "a turn of ADK alone, in memory"
_LANGO: Final = ("-m", "lango.cli")
_RUN: Final = "lango run"
_FIRST_RUN: Final = "lango run that creates its database"
_HELP: Final = "lango --help"
_TARGETS: Final = {_HELP: 0.4, _RUN: 2.0, _FIRST_RUN: 2.0}
"""CPU seconds."""
_ADK_TURN_CODE: Final = """
import asyncio
from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

class Answering(BaseLlm):
    async def generate_content_async(self, request, stream=False):
        yield LlmResponse(content=types.ModelContent("hello"))

async def main():
    agent = LlmAgent(name="agent", model=Answering(model="answering"))
    sessions = InMemorySessionService()
    runner = Runner(
        app_name="app", agent=agent, session_service=sessions, auto_create_session=True
    )
    said = types.UserContent("hello")
    async for event in runner.run_async(user_id="ann", session_id="one", new_message=said):
        pass

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A process to start: Python's arguments, and what to measure of it."""

    arguments: Sequence[str]
    ready: str = ""  # in a line on standard error: the process is measured up to it, not to its end
    creates_database: bool = False


_STARTS: Final = {
    _IMPORT: Start(("-c", "import google.adk.runners, google.adk.agents.llm_agent")),
    _ADK_TURN: Start(("-c", _ADK_TURN_CODE)),
    _HELP: Start((*_LANGO, "--help")),
    _RUN: Start((*_LANGO, "run", "hello")),
    _FIRST_RUN: Start((*_LANGO, "run", "hello"), creates_database=True),
    "lango worker, until it is ready": Start((*_LANGO, "worker"), ready="Running turns of"),
}


def timed(start: Start, project: Path) -> Sample:
    """Start a process in a project's folder; return its times until it ends or is ready."""
    if start.creates_database:
        for file in project.glob("lango.db*"):
            file.unlink()
    wall_before, cpu_before = time.perf_counter(), _children_cpu()
    with subprocess.Popen(
        [sys.executable, *start.arguments],
        cwd=project,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines: list[str] = []
        for line in process.stderr or ():
            lines.append(line)
            if start.ready and start.ready in line:
                process.kill()
                break
        ended = process.wait()
    if ended != (-SIGKILL if start.ready else 0):
        raise RuntimeError(f"{' '.join(start.arguments)} failed: {''.join(lines)}")
    return Sample(time.perf_counter() - wall_before, _children_cpu() - cpu_before)


async def _timed(start: Start, project: Path) -> Sample:
    return await to_thread(timed, start, project)


def _children_cpu() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """This process's environment, in which Python keeps compiled bytecode."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


async def _compared(rounds: int) -> Result:
    with TemporaryDirectory() as folder:
        project = Path(folder)
        timed(Start((*_LANGO, "init", ".")), project)
        ways = {name: partial(_timed, start, project) for name, start in _STARTS.items()}
        samples = await interleave(ways, rounds)
    table = Table(
        f"Start of a process (median of {rounds} rounds)",
        ("process", "CPU s", "× ADK's import", "× ADK's turn", "wall s"),
    )
    for name, series in samples.items():
        ratios = [
            estimate(divide(cpu(series), cpu(samples[base]))) for base in (_IMPORT, _ADK_TURN)
        ]
        took = f"{median(wall(series)):.2f}"
        table.add(name, f"{median(cpu(series)):.2f}", *ratios, took)
    findings = [
        Finding(Target(f"{name}, CPU", limit, unit="s"), estimate(cpu(samples[name])))
        for name, limit in _TARGETS.items()
    ]
    return Result([table], findings)


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    return await run("startup", [partial(_compared, rounds)], _AT_MOST)
