"""The command line, `lango`: one file per command group."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import Final

_GARBAGE_THRESHOLD: Final = 100_000
"""New objects between two garbage collections; Python's default is 700."""


def main() -> None:
    """Run a command; a LangoError prints one line on standard error, with exit code 1."""
    _collect_little_garbage()
    import typer.main

    from lango.cli.output.logs import with_verbose
    from lango.cli.root import app
    from lango.errors import LangoError

    try:
        with_verbose(typer.main.get_command(app))(prog_name="lango")
    except LangoError as error:
        print(f"lango: {error}", file=sys.stderr)
        sys.exit(1)


def _collect_little_garbage() -> None:
    """Save a short command the time that the garbage collector takes, a fifth of `lango run`.

    Nearly all objects belong to imported modules and stay: collections between the imports find
    nothing, and neither do those when the interpreter exits. Servers and workers set thresholds of
    their own once they have started.
    """
    gc.set_threshold(_GARBAGE_THRESHOLD)
    atexit.register(gc.freeze)  # frozen objects are not walked
