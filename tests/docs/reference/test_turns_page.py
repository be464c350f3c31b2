"""The examples of the turns' page run, and its tables are whole."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from lango.core.turns.states import Busy
from lango.turns.service import Turns
from lango.turns.worker import WorkerOptions
from tests.docs.pages import check_example

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/turns.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, ["safe: queued", "1 accepted", "2 started", "tool.finished", "completed"]),
        (1, ["input_required 1", "completed answered"]),
    ],
)
def test_the_examples_do_what_the_page_says(
    number: int, printed: list[str], tmp_path: Path
) -> None:
    check_example(EXAMPLES[number], tmp_path, printed)


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 2


def test_every_method_and_option_has_its_row() -> None:
    rows = set(re.findall(r"^\| `\"?(\w+)", PAGE, re.MULTILINE))
    methods = {name for name, _ in inspect.getmembers(Turns, inspect.isfunction) if name[0] != "_"}
    assert methods <= rows
    assert {field.name for field in fields(WorkerOptions)} <= rows
    assert set(get_args(Busy)) <= rows
    parameters = inspect.signature(Turns.submit).parameters
    documented = {"self", "app", "message", "options"}
    assert all(f"`{name}" in PAGE for name in parameters if name not in documented)
