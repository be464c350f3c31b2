"""The command line, `lango`: one file per command group."""

from __future__ import annotations

import sys

import typer.main

from lango.cli.output.logs import with_verbose
from lango.cli.root import app
from lango.errors import LangoError


def main() -> None:
    """Run a command; a LangoError prints one line on standard error, with exit code 1."""
    try:
        with_verbose(typer.main.get_command(app))(prog_name="lango")
    except LangoError as error:
        print(f"lango: {error}", file=sys.stderr)
        sys.exit(1)
