"""Runs state machines of hypothesis on both databases, for guarantees that compare with a model."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from faults.harness import Outcome, Run

_SLOW: Final = [HealthCheck.too_slow, HealthCheck.data_too_large]


def run_machine(
    machine: type[RuleBasedStateMachine],
    attributes: dict[str, Any],
    *,
    runs: int,
    steps: int,
    seed_value: int,
    shrink: bool = True,
) -> None:
    """Run the machine with `attributes`; raise its first failure.

    The steps to it are printed first; with `shrink`, the fewest.
    """
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        seed(seed_value)(type(f"{machine.__name__}There", (machine,), attributes)),
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=False,
            phases=phases,
            report_multiple_bugs=False,
            print_blob=True,
            suppress_health_check=_SLOW,
        ),
    )


def on_both_databases(
    run: Run, runs: Mapping[str, int], steps: int, on_one: Callable[[str, int, int], None]
) -> Outcome:
    """Call `on_one` with each database's URL, its number of runs, and the seed."""
    outcome = Outcome()
    for database, url in run.databases.each().items():
        try:
            on_one(url, runs[database], run.seed)
        except Exception as error:  # noqa: BLE001 - any error goes into the report
            print("\n".join(getattr(error, "__notes__", [])))  # the steps that lead there
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.name}, line {last.lineno}"
            outcome.fail(f"{database}: {type(error).__name__} in {where}: {error!s:.500}")
        outcome.note(f"{runs[database]} runs on {database}")
    outcome.note(f"up to {steps} steps each")
    return outcome
