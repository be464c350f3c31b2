"""Command lines as pages write them: parsed by the program itself, and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer.main

from lango.cli.root import app

_COMMAND: Final = re.compile(r"(?:^|&& |\|\| |exec |-- |\$\(|^[A-Z_]+=\S+ )lango ")
_COMMENT: Final = re.compile(r"(?:^|\s)#\s.*")
_END: Final = {"&", "&&", "||", "|", ";", ">", ")"}


def parse(arguments: Sequence[str]) -> None:
    """Parse the arguments of `lango`; what it does not know, or lacks, is an error."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    rest, name = list(arguments), "lango"
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, list(rest), parent=context)
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, list(rest), parent=context)


def lango_lines(script: str) -> Iterator[list[str]]:
    """The arguments of each `lango` in a script."""
    for written in script.replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", written)
        for found in _COMMAND.finditer(line):
            lexer = shlex.shlex(line[found.end() :], posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            yield list(_until_end(lexer))


def _until_end(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in _END:
            return
        yield word
