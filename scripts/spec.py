"""Run the scenario tests and end with the number of scenarios that hold.

A scenario holds when each of its tests passed, on every database it ran on.
"""

import sys
from collections.abc import Sequence

import pytest

TOTAL = 36


class ScenarioCount:
    """Collects, per scenario, the outcome of every phase of every test that bears its name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # tests/spec/conftest.py puts the name there: properties reach us from xdist's workers.
        for key, value in report.user_properties:
            if key == "scenario":
                self.outcomes.setdefault(str(value), []).append(report.outcome)

    def holding(self) -> int:
        return sum(set(outcomes) == {"passed"} for outcomes in self.outcomes.values())


def main(arguments: Sequence[str]) -> int:
    """Run tests/spec with pytest; its exit code is ours."""
    count = ScenarioCount()
    code = int(pytest.main(["-q", "tests/spec", *arguments], plugins=[count]))
    print(f"spec: {count.holding()}/{TOTAL} scenarios", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
