"""Maps each line to the tests that run it: they are the first to notice a mutation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from coverage import CoverageData

MEASURED: Final = (
    *("tests/unit", "tests/adk", "tests/store"),
    *("tests/turns", "tests/providers", "tests/server"),
)
AT_MOST: Final = 150
"""Most tests for one line. For a line that every test runs, a few are enough."""
_SETTINGS: Final = "[run]\nsource = lango\nrelative_files = true\nconcurrency = thread,greenlet\n"


class CoveringTests:
    """The lines of a copy of the repository, each with the tests that run it."""

    def __init__(self, data: Path) -> None:
        self._data = CoverageData(str(data))
        self._data.read()

    @classmethod
    def load_or_measure(cls, root: Path, data: Path) -> CoveringTests:
        """Load the measurement of a copy from its file; measure first if there is no file."""
        if not data.exists():
            _measure(root, data, MEASURED)
        return cls(data)

    def for_line(self, file: str, line: int) -> list[str]:
        """The ids of tests that run a line: first those of its own test file, then unit tests."""
        contexts = self._data.contexts_by_lineno(file).get(line, [])
        tests = {context.rpartition("|")[0] for context in contexts} - {""}
        own = f"/test_{Path(file).stem}"
        first = sorted(tests, key=lambda test: (own not in test, "/unit/" not in test, test))
        return first[:AT_MOST]


def _measure(root: Path, data: Path, folders: Sequence[str]) -> None:
    """Run the tests once, and record the lines of each, also of a test that fails."""
    data.parent.mkdir(parents=True, exist_ok=True)
    settings = data.with_suffix(".ini")
    settings.write_text(_SETTINGS, "utf-8")
    coverage = ("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=")
    unfinished = data.with_suffix(".unfinished")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *coverage, *folders],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "COVERAGE_FILE": str(unfinished)},
        check=False,
    )
    unfinished.rename(data)
