"""The OpenAPI document is true: what it allows is answered as it says, and nothing breaks us."""

import pytest

from faults.turns.workspace import Workspace
from lango.server.http.problems import MEDIA_TYPE
from tests.server.http.fuzzing import fuzzed
from tests.server.routes.operations import OPERATIONS, Operation, document

EXAMPLES = 20


def test_every_operation_says_what_it_is() -> None:
    for methods in document()["paths"].values():
        for result in methods.values():
            assert result["operationId"]
            assert result["description"]
            assert any(status.startswith("2") for status in result["responses"])
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_failure_is_a_problem() -> None:
    for path, methods in document()["paths"].items():
        for result in methods.values():
            failures = {s: r for s, r in result["responses"].items() if s[0] in "45"}
            if path not in ("/healthz", "/readyz"):
                assert {"401", "403"} <= set(failures)
                kinds = {kind for response in failures.values() for kind in response["content"]}
                openais = {"application/json"} if path.startswith("/openai/") else set[str]()
                assert kinds == {MEDIA_TYPE} | openais


def test_the_credential_is_a_bearer() -> None:
    schemes = document()["components"]["securitySchemes"]
    assert {name: one["scheme"] for name, one in schemes.items()} == {"bearer": "bearer"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_whatever_is_sent_is_answered_as_documented(
    operation: Operation, sqlite_workspace: Workspace, tenant: str
) -> None:
    with fuzzed(sqlite_workspace, tenant) as server:
        server.fuzz(operation, examples=EXAMPLES, start=20)
        assert server.sent > 0


def test_an_answer_that_is_not_documented_is_found(
    sqlite_workspace: Workspace, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr("lango.store.sessions.store.SqlSessionStore.page", broken)
    listing = next(each for each in OPERATIONS if each.id == "list_sessions")
    with fuzzed(sqlite_workspace, tenant) as server, pytest.raises(AssertionError, match="500"):
        server.fuzz(listing, examples=EXAMPLES, start=20)
