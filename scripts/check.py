"""Run the parts of `make check`, time each, and end with one line that says how it went."""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

Command = tuple[str, ...]

PYTEST = ("pytest", "-q")
PARALLEL = ("-n", "3", "--dist", "worksteal")
"""One process more than CI has cores: tests wait for about half of their time."""
POOLED = ("/usr/bin/env", "LANGO_TEST_POOLED=database", str(BIN / "pytest"), "-q")
"""The same through PgBouncer: `tests.support.databases` starts it."""

PARTS: dict[str, tuple[Command, ...]] = {
    "lint": (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("pyright",),
        ("lint-imports", "--no-logo"),
    ),
    "unit": ((*PYTEST, *PARALLEL, "tests/unit", "tests/house", "tests/bench"),),
    "store": ((*PYTEST, *PARALLEL, "tests/store"),),
    "pooled": (
        (
            *(*POOLED, *PARALLEL, "-k", "postgresql", "tests/store/sessions/test_sessions.py"),
            *("tests/store/turns/test_claim.py", "tests/turns/test_service.py"),
        ),
    ),
    "models": ((*PYTEST, *PARALLEL, "tests/providers"),),
    "adk": ((*PYTEST, *PARALLEL, "tests/adk"),),
    "cli": ((*PYTEST, *PARALLEL, "tests/spec", "tests/cli"),),
    "turns": ((*PYTEST, *PARALLEL, "tests/turns"),),
    "telemetry": ((*PYTEST, *PARALLEL, "tests/telemetry/tracing"),),
    "drills": ((*PYTEST, *PARALLEL, "tests/telemetry/runbook"),),
    "server": ((*PYTEST, *PARALLEL, "tests/server"),),
    "console": ((*PYTEST, *PARALLEL, "tests/console"),),
    "faults": ((*PYTEST, *PARALLEL, "tests/faults"),),
    "docs": ((*PYTEST, *PARALLEL, "tests/docs"),),
}


BESIDE: tuple[str, ...] = ("drills",)
"""Parts that mostly wait: they run beside the first of the others."""


def run_part(name: str) -> bool:
    """Run every command of a part, also after one has failed, and print the time taken.

    The output of a part that runs beside others is printed at its end.
    """
    started = time.monotonic()
    output = subprocess.PIPE if name in BESIDE else None
    ok, printed = True, ""
    for command in PARTS[name]:
        print(f"$ {' '.join(command)}", flush=True)
        tool, *arguments = command
        done = subprocess.run(
            [BIN / tool, *arguments],
            cwd=ROOT,
            check=False,
            text=True,
            stdout=output,
            stderr=output and subprocess.STDOUT,
        )
        ok, printed = ok and done.returncode == 0, printed + (done.stdout or "")
    verdict = "ok" if ok else "FAILED"
    print(f"{printed}check {name}: {verdict} ({time.monotonic() - started:.1f}s)\n", flush=True)
    return ok


def run_parts(names: Sequence[str]) -> list[str]:
    """Run the parts; the names of those that failed."""
    beside = [name for name in names if name in BESIDE]
    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(run_part, name) for name in beside]
        ok = {name: run_part(name) for name in names if name not in BESIDE}
    ok |= {name: done.result() for name, done in zip(beside, waiting, strict=True)}
    return [name for name in names if not ok[name]]


def cpu_seconds() -> float:
    """The CPU time of all ended processes that this one started, and that those started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(names: Sequence[str]) -> int:
    """Run the named parts, or all of them."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"check: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
        return 2
    started = time.monotonic()
    failed = run_parts(names or list(PARTS))
    took = f"({time.monotonic() - started:.1f}s, CPU {cpu_seconds():.0f}s)"
    print(f"check: FAILED in {', '.join(failed)} {took}" if failed else f"check: ok {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
