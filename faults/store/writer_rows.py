"""G4 and G5: writer processes on one session, on PostgreSQL and on SQLite."""

from __future__ import annotations

from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.store.writers import write_at_once

WRITERS: Final = (8, 32)
MINIMUM_RATE: Final = 200.0


def on_postgres(run: Run) -> Outcome:
    """Half of the events by 8 writers, half by 32."""
    outcome = Outcome()
    for writers in WRITERS:
        rate = write_at_once(
            run.databases.postgres,
            writers=writers,
            count=run.count // len(WRITERS),
            with_state=False,
            outcome=outcome,
        )
        outcome.note(f"{writers} writers {rate:.0f} events/s, each sent twice")
        too_slow = run.timed and rate < MINIMUM_RATE
        outcome.expect(not too_slow, f"{writers} writers: {rate:.0f}/s, under {MINIMUM_RATE:.0f}")
    outcome.note(f"{run.count} events")
    return outcome


def on_sqlite(run: Run) -> Outcome:
    """The same on a file; each event has its own state keys in every scope."""
    outcome = Outcome()
    for writers in WRITERS:
        rate = write_at_once(
            run.databases.sqlite,
            writers=writers,
            count=run.count // len(WRITERS),
            with_state=True,
            outcome=outcome,
        )
        outcome.note(f"{writers} writers {rate:.0f} events/s, each sent twice")
    outcome.note(f"{run.count} events, {3 * run.count} state keys")
    return outcome


G4: Final = Guarantee(
    "G4",
    "writers on one PostgreSQL session: each event once, in order, no gap",
    full=20_000,
    ci=2_000,
    run=on_postgres,
)
G5: Final = Guarantee(
    "G5",
    "writers on one SQLite session: nothing lost, never locked",
    full=2_000,
    ci=500,
    run=on_sqlite,
)
