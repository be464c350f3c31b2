"""Parses the description of a function and of its parameters from its docstring.

It supports Google's `Args:`, NumPy's underlined `Parameters` and Sphinx's `:param x:`; of any
other docstring the whole text is the description.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

_GOOGLE: Final = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_NUMPY: Final = re.compile(r"^(Parameters|Other Parameters)\n-{3,}\s*$", re.MULTILINE)
_SPHINX: Final = re.compile(r"^:(?:param|parameter|arg)\s+(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)$")
_SPHINX_OTHER: Final = re.compile(r"^:\w+[^:]*:")
_ENTRY: Final = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY: Final = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?):?\s*$"
)


def parse(doc: str | None) -> tuple[str, dict[str, str]]:
    """The description, and the texts of the parameters that have one."""
    text = inspect.cleandoc(doc or "")
    if _NUMPY.search(text):
        return _numpy(text)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _GOOGLE.match(line):
            return _joined(lines[:number]), _entries(_indented(lines[number + 1 :]), _ENTRY)
        if _SPHINX.match(line):
            return _joined(lines[:number]), _sphinx(lines[number:])
    return _without_sections(lines), {}


def _numpy(text: str) -> tuple[str, dict[str, str]]:
    before, _, after = _NUMPY.split(text, maxsplit=1)
    body: list[str] = []
    lines = after.strip("\n").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.startswith("---") and _SECTION.match(line):
            break
        body.append(line)
    return before.strip(), _entries(body, _NUMPY_ENTRY)


def _indented(lines: list[str]) -> list[str]:
    """The lines of a section, without their common indentation."""
    body: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        body.append(line)
    return inspect.cleandoc("\n" + "\n".join(body)).splitlines()


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """The entries: each starts at the margin, and indented lines below belong to it."""
    entries: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lines:
        entry = pattern.match(line)
        if entry:
            words = entries.setdefault(entry[1], [])
            words.extend(entry.groups()[1:])
        elif line.startswith((" ", "\t")):
            words.append(line)
    return {name: description for name, texts in entries.items() if (description := _flat(texts))}


def _sphinx(lines: list[str]) -> dict[str, str]:
    entries: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lines:
        entry = _SPHINX.match(line)
        if entry:
            words = entries.setdefault(entry[1], [])
            words.append(entry[2])
        elif _SPHINX_OTHER.match(line):
            words = []
        else:
            words.append(line)
    return {name: description for name, texts in entries.items() if (description := _flat(texts))}


def _without_sections(lines: list[str]) -> str:
    """The text before sections such as `Returns:`: the rest is for readers of the code."""
    for number, line in enumerate(lines):
        if _SECTION.match(line) and line.rstrip().endswith(":"):
            return _joined(lines[:number])
    return _joined(lines)


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip()


def _flat(texts: list[str]) -> str:
    return " ".join(" ".join(texts).split())
