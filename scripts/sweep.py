"""Try lango on a version of ADK, in an environment of its own: `make sweep ADK=2.12.0`.

The steps are `canaries` (the private parts of ADK that lango uses), `check` (`make check` without
lint) and `kills` (row G1 at its full count; `kills 3/8` is one of eight slices). Each step adds a
line to docs/adk-results.jsonl, from which the table of docs/versions.md is written.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "docs" / "adk-results.jsonl"
PAGE: Final = ROOT / "docs" / "versions.md"
BEGIN: Final = "<!-- written from adk-results.jsonl by `make sweep` -->"
END: Final = "<!-- end of what is written -->"
STEPS: Final = ("canaries", "check", "kills")
UNLINTED: Final = (
    *(
        "unit",
        "store",
        "pooled",
        "models",
        "agents",
        "turns",
        "server",
        "console",
        "faults",
        "docs",
    ),
)


def run(*command: str, **environment: str) -> int:
    """Run a command in the repository, and return its exit code."""
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=False
    ).returncode


def install(version: str) -> Path:
    """The Python of an environment with this version, made anew only if it is missing."""
    folder = ROOT / "build" / f"adk-{version}"
    python = folder / "bin" / "python"
    if python.exists():
        return python
    folder.parent.mkdir(exist_ok=True)
    constraint, resolved = folder.with_suffix(".in"), folder.with_suffix(".txt")
    constraint.write_text(f"google-adk=={version}\n")
    compiled = ("uv", "pip", "compile", "--quiet", "--all-extras", "pyproject.toml")
    steps = (
        (*compiled, "--constraint", str(constraint), "--output-file", str(resolved)),
        ("uv", "venv", "--quiet", "--python", ">=3.11", str(folder)),
        ("uv", "pip", "sync", "--quiet", "--python", str(python), str(resolved)),
        ("uv", "pip", "install", "--quiet", "--python", str(python), "--no-deps", "-e", "."),
    )
    for step in steps:
        if run(*step):
            raise SystemExit(f"sweep: google-adk {version} could not be installed")
    return python


def try_step(python: Path, version: str, step: str, part: str) -> int:
    """Run one step on a version; 0 if it passed."""
    own, swept = str(python), {"ADK_SWEEP": version}
    if step == "canaries":
        return run(own, "-m", "pytest", "-q", "tests/adk/compat", **swept)
    if step == "check":
        return run(own, "scripts/check.py", *UNLINTED, **swept)
    sliced = ("--part", part) if part else ()
    kept = ("--results", str(ROOT / "build" / f"adk-{version}.jsonl"))
    return run(own, "-m", "faults", "--only", "G1", "--seed", "1818", *sliced, *kept, **swept)


def record(version: str, step: str, part: str, code: int, seconds: float) -> None:
    """Add a line to the results."""
    asked = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = {
        "adk": version,
        "step": step,
        "part": part or "1/1",
        "commit": commit.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "outcome": "failed" if code else "ok",
        "seconds": round(seconds, 1),
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The table of versions: the last outcome of each step."""
    last = {(line["adk"], line["step"], line["part"]): line for line in lines}
    rows = ["| google-adk | canaries | make check | kill sweep |", "|---|---|---|---|"]
    for version in sorted({line["adk"] for line in lines}):
        cells = [
            _cell([line for (adk, s, _), line in last.items() if (adk, s) == (version, step)])
            for step in STEPS
        ]
        rows.append(f"| {version} | {' | '.join(cells)} |")
    return rows


def _cell(lines: Sequence[dict[str, Any]]) -> str:
    """The outcome of a step, of which all parts must have run."""
    if not lines:
        return "not run"
    newest = max(lines, key=lambda line: line["date"])
    total = int(newest["part"].partition("/")[2])
    of_run = {line["part"]: line for line in lines if line["part"].endswith(f"/{total}")}
    failed = [part for part, line in of_run.items() if line["outcome"] != "ok"]
    verdict = f"failed in {', '.join(failed)}" if failed else "ok"
    some = "" if len(of_run) == total else f", {len(of_run)} of {total} parts"
    return f"{verdict}{some} ({newest['date']}, {newest['commit']})"


def write_table() -> None:
    """Write the table into the page of versions."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n\n".join([f"{before}{BEGIN}", "\n".join(table(lines)), f"{END}{after}"]))


def main(arguments: Sequence[str]) -> int:
    """`sweep.py 2.12.0 [step [part]]`: run a step, or all of them."""
    version, *rest = arguments
    step, part = (*rest, "", "")[:2]
    python = install(version)
    failed: list[str] = []
    for each in [step] if step else STEPS:
        began = time.monotonic()
        code = try_step(python, version, each, part)
        record(version, each, part, code, time.monotonic() - began)
        failed += [each] if code else []
    write_table()
    print(f"sweep: google-adk {version}: {'FAILED in ' + ', '.join(failed) if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
