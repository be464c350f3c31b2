"""Running `lango` in this process, as a shell would see it."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import dataclass
from unittest import mock

from lango.cli import main

COLUMNS = "200"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left behind."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> CommandResult:
    """Run one command to its end."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch("sys.argv", ["lango", *arguments]),
        mock.patch.dict(os.environ, {"COLUMNS": COLUMNS, "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return CommandResult(code, out.getvalue(), err.getvalue())
