"""What is another's is missing, whichever operation is called, and in whichever way."""

import httpx
import pytest

from lango.server.auth.callers import Caller
from tests.server.auth.matrix import (
    BODIES,
    FOR_ADMINS,
    FOR_ALL_CALLERS,
    FOR_USERS,
    SECURED,
    TITLE,
    WAYS,
    Matrix,
    existing,
    matrix,
)
from tests.server.routes.operations import OPERATIONS, Operation
from tests.server.served_apps import ServedApp


def test_all_but_the_probes_ask_who_is_calling() -> None:
    unsecured = {operation.id for operation in OPERATIONS} - {each.id for each in SECURED}
    assert unsecured == {"get_health", "get_readiness"}


def test_what_the_matrix_knows_is_there() -> None:
    known = {*BODIES, *FOR_ADMINS, *FOR_ALL_CALLERS, *FOR_USERS}
    assert known <= {operation.id for operation in OPERATIONS}
    assert {each.id for each in OPERATIONS if each.has_body} == set(BODIES)


@pytest.mark.parametrize("operation", SECURED, ids=str)
async def test_every_way_to_call_has_its_answer(operation: Operation, served: ServedApp) -> None:
    tried = await matrix(served)
    assert await tried.wrongs(operation) == []
    assert tried.cells == 2 * len(WAYS)


def by_id(wanted: str) -> Operation:
    return next(operation for operation in OPERATIONS if operation.id == wanted)


async def _nosy(sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """A matrix whose server takes everybody for ann."""
    tried = await matrix(sqlite_served)

    async def ann(*_: object) -> Caller:
        return sqlite_served.callers["ann"]

    monkeypatch.setattr("lango.server.auth.identity.Credentials.caller", ann)
    return tried


@pytest.mark.parametrize(
    "operation", ["get_session", "list_memory", "list_sessions", "rename_session"]
)
async def test_a_leak_would_be_seen(
    operation: str, sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = await _nosy(sqlite_served, monkeypatch)
    wrongs = await tried.wrongs(by_id(operation))
    expected = {"no key", "wrong key", "other tenant", "other user", "acting for another user"}
    assert {name for name in expected if any(f"by {name}:" in each for each in wrongs)} == expected


async def test_an_answer_that_tells_what_exists_would_be_seen(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = await matrix(sqlite_served)
    ask = httpx.AsyncClient.request

    async def telling(client: httpx.AsyncClient, *sent: str, **more: object) -> httpx.Response:
        answer = await ask(client, *sent, **more)  # pyright: ignore[reportArgumentType]
        answer.headers["X-Seen"] = str("0000" in str(answer.url))
        return answer

    monkeypatch.setattr(httpx.AsyncClient, "request", telling)
    wrongs = await tried.wrongs(by_id("get_session"))
    assert any("other user: the response reveals what exists" in each for each in wrongs)


async def test_lists_show_nothing_of_others_to_who_has_none(served: ServedApp) -> None:
    async with served.worker():
        session = (await existing(served)).session
    for name in ("bob", "other-ann"):
        async with served.client(name) as client:
            answer = await client.get("/v1/sessions")
        assert answer.json() == {"sessions": [], "next": None}
        assert session not in answer.text
        assert TITLE not in answer.text
