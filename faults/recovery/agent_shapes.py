"""SHAPES: kills and freezes of Workflows, and of agents with questions, callbacks or nesting."""

from __future__ import annotations

from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.recovery.kill_shapes import SWEEP_SHAPES
from faults.recovery.kills import run_sweeps
from faults.recovery.shapes import SHAPES

NAMED: Final = {f"SHAPES {name}": shape for name, shape in SHAPES.items()}
SWEEP_SHAPES.update(NAMED)


def every_shape(run: Run) -> Outcome:
    """Kills drawn over the shapes and both databases, each pair at least once."""
    return run_sweeps(run, list(NAMED))


SHAPES_ROW: Final = Guarantee(
    "SHAPES",
    "agents that ask, have callbacks or are nested, killed and frozen: as if nothing had happened",
    full=0,
    ci=82,
    run=every_shape,
    parts=16,
    picks=True,
)
