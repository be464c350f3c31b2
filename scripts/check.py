"""Run the parts of `make check`, time each, and end with one line that says how it went."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

Command = tuple[str, ...]

PYTEST = ("pytest", "-q")
PARALLEL = ("-n", "2", "--dist", "worksteal")
POOLED = ("/usr/bin/env", "LANGO_TEST_POOLED=database", str(BIN / "pytest"), "-q")
"""The same through PgBouncer: `lango.testing.databases` starts it."""

PARTS: dict[str, tuple[Command, ...]] = {
    "lint": (
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("pyright",),
        ("lint-imports", "--no-logo"),
    ),
    "unit": ((*PYTEST, *PARALLEL, "tests/unit", "tests/house", "tests/bench"),),
    "store": ((*PYTEST, *PARALLEL, "tests/store", "tests/adk"),),
    "pooled": (
        (
            *(*POOLED, *PARALLEL, "-k", "postgresql", "tests/store/sessions/test_sessions.py"),
            *("tests/store/turns/test_claim.py", "tests/turns/test_service.py"),
        ),
    ),
    "models": ((*PYTEST, *PARALLEL, "tests/providers"),),
    "agents": ((*PYTEST, *PARALLEL, "tests/spec", "tests/runner", "tests/cli"),),
    "turns": ((*PYTEST, *PARALLEL, "tests/turns", "tests/durable"),),
    "server": ((*PYTEST, *PARALLEL, "tests/server"),),
    "console": ((*PYTEST, *PARALLEL, "tests/console"),),
    "faults": ((*PYTEST, *PARALLEL, "tests/faults"),),
    "docs": ((*PYTEST, *PARALLEL, "tests/docs", "tests/examples"),),
}


def run_part(name: str) -> bool:
    """Run every command of a part, also after one has failed, and print the time taken."""
    started = time.monotonic()
    ok = True
    for command in PARTS[name]:
        print(f"$ {' '.join(command)}", flush=True)
        tool, *arguments = command
        done = subprocess.run([BIN / tool, *arguments], cwd=ROOT, check=False)
        ok = ok and done.returncode == 0
    verdict = "ok" if ok else "FAILED"
    print(f"check {name}: {verdict} ({time.monotonic() - started:.1f}s)\n", flush=True)
    return ok


def main(names: Sequence[str]) -> int:
    """Run the named parts, or all of them."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"check: no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
        return 2
    started = time.monotonic()
    failed = [name for name in names or PARTS if not run_part(name)]
    took = f"({time.monotonic() - started:.1f}s)"
    print(f"check: FAILED in {', '.join(failed)} {took}" if failed else f"check: ok {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
