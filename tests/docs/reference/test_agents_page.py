"""The examples of the agents' page run, and the page knows every event."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from lango.core.turns.events import KINDS, ApprovalRequired, CredentialRequired
from tests.docs.pages import check_example

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/agents.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EVENT_ROW = re.compile(r"^\| `([a-z._]+)` \| `(\w+)` \| (.*) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, ["You said: Hello!", "started {'attempt': 1}", "tool.finished", "completed"]),
        (1, ["You said: Hello!"]),
        (2, ["May it pay {'amount': 3} ?", "paid 3"]),
    ],
)
def test_the_examples_do_what_the_page_says(
    number: int, printed: list[str], tmp_path: Path
) -> None:
    check_example(EXAMPLES[number], tmp_path, printed)


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 3


def test_every_event_has_its_row_and_every_field_is_in_it() -> None:
    rows = {kind: (name, listed) for kind, name, listed in EVENT_ROW.findall(PAGE)}
    assert {kind: name for kind, (name, _) in rows.items()} == {
        kind: event.__name__ for kind, event in KINDS.items()
    }
    for kind, event in KINDS.items():
        if event not in (ApprovalRequired, CredentialRequired):  # described by the other events
            assert all(f"`{field.name}`" in rows[kind][1] for field in fields(event)), kind
