"""The row of the tenants for a few operations; in tests/server each has tests of its own."""

import pytest

from faults.harness import Databases, Run
from faults.server.tenants import trial
from tests.server.routes.operations import OPERATIONS

FEW = [
    each
    for each in OPERATIONS
    if each.id in ("delete_memory", "get_health", "get_session", "list_memory", "list_models")
]


def test_the_row_tries_what_it_says(sqlite_url: str, postgres_url: str) -> None:
    outcome = trial(Run(60, 1, Databases(sqlite_url, postgres_url)), FEW)
    assert outcome.failures == []
    called, cases, requests = (int(figure.split()[0]) for figure in outcome.figures)
    assert (called, cases >= 60, requests > 1_000) == (len(FEW), True, True)


def test_what_breaks_is_in_its_report(
    sqlite_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr("lango.store.sessions.store.SqlSessionStore.page", broken)
    lists = [each for each in OPERATIONS if each.id == "list_sessions"]
    outcome = trial(Run(20, 1, Databases(sqlite_url, postgres_url)), lists)
    assert any("list_sessions by other user: 500" in wrong for wrong in outcome.failures)
    assert any("list_sessions (seed" in wrong for wrong in outcome.failures)
