"""Every operation and every problem of the server is in its reference page, and nothing else."""

import re
from pathlib import Path

from lango.server.http.problems import STATUS, type_of
from tests.server.routes.operations import OPERATIONS

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/http.md").read_text()


def test_every_operation_has_its_heading() -> None:
    headings = re.findall(r"^## ([A-Z]+ /.*)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(f"{each.method} {each.path}" for each in OPERATIONS)


def test_every_problem_has_its_row() -> None:
    rows = re.findall(r"^\| (`[a-z`, -]+) \| ([\d, ]+) \|", PAGE, re.MULTILINE)
    listed = {
        f"urn:lango:error:{name}": statuses.split(", ")
        for names, statuses in rows
        for name in re.findall(r"`([a-z-]+)`", names)
    }
    for kind, status in STATUS.items():
        assert str(status) in listed[type_of(kind.__name__)]
