"""Pages taken apart: the code blocks that tests run or check."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
_BLOCK: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, which may be empty, and its text."""

    language: str
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page, of these languages or of all, in their order."""
    found = [Block(match[2], match[3]) for match in _BLOCK.finditer(page.read_text("utf-8"))]
    return [block for block in found if not languages or block.language in languages]


def check_example(example: str, folder: Path, printed: Sequence[str]) -> None:
    """Run an example as a program in the folder; it must succeed and print each of the texts."""
    ran = subprocess.run(
        [sys.executable, "-c", example],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for text in printed:
        assert text in ran.stdout, text
