"""The tenant matrix: every operation by every caller, on what exists and on what does not."""

from typing import Any

import httpx
import pytest

from tests.server.operations import OPERATIONS, Operation
from tests.server.places import House

BODIES: dict[str, dict[str, Any]] = {
    "create_session": {"title": "theirs"},
    "rename_session": {"title": "new"},
    "submit_turn": {"message": "hi"},
    "answer_approval": {"call": "call_1", "approved": False},
    "create_chat_completion": {"messages": [{"role": "user", "content": "hi"}]},
}
"""What each operation with a body is sent; one that is not here fails the matrix."""
APP_FIELDS = {"create_session": "app", "create_chat_completion": "model"}
AGENT_LISTS = ("list_agents", "list_models")
MISSING = ("ses_00000000000000000000000000000000", "turn_00000000000000000000000000000000")
SECURED = [operation for operation in OPERATIONS if operation.is_secured]
NAMING = [operation for operation in SECURED if operation.names_something]

Ids = tuple[str, str]


async def existing(served: House) -> Ids:
    """A session of ann's, and a turn of it that waits for a person."""
    session = await served.session(title="ann's")
    turn = await served.turn(session, 'call pay {"amount": 1}')
    async with served.worker():
        await served.turns().wait(turn)
    return session, turn


def body_of(served: House, operation: Operation) -> dict[str, Any] | None:
    if not operation.has_body:
        return None
    app = {APP_FIELDS[operation.id]: served.agent} if operation.id in APP_FIELDS else {}
    return {**app, **BODIES[operation.id]}


async def ask(served: House, operation: Operation, name: str | None, ids: Ids) -> httpx.Response:
    body = body_of(served, operation)
    async with served.client(name) as client:
        return await client.request(operation.method, operation.path_of(*ids), json=body)


def told(answer: httpx.Response) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Every byte of an answer."""
    return answer.status_code, answer.content, answer.headers.raw


def test_all_but_the_probes_ask_who_is_calling() -> None:
    unsecured = {operation.id for operation in OPERATIONS} - {each.id for each in SECURED}
    assert unsecured == {"get_health", "get_readiness"}


@pytest.mark.parametrize("operation", SECURED, ids=str)
async def test_nobody_gets_anything_without_a_credential(
    operation: Operation, small: House
) -> None:
    session = await small.session()
    ids = session, await small.turn(session, "x")
    for name in (None, "wrong"):
        answers = [told(await ask(small, operation, name, which)) for which in (ids, MISSING)]
        assert answers[0] == answers[1]
        assert answers[0][0] == 401


@pytest.mark.parametrize("operation", SECURED, ids=str)
async def test_who_speaks_for_nobody_gets_the_agents_alone(
    operation: Operation, small: House
) -> None:
    session = await small.session()
    ids = session, await small.turn(session, "x")
    answers = [await ask(small, operation, "nobody", which) for which in (ids, MISSING)]
    expected = 200 if operation.id in AGENT_LISTS else 403
    assert [answer.status_code for answer in answers] == [expected, expected]
    assert told(answers[0]) == told(answers[1])


@pytest.mark.parametrize("operation", NAMING, ids=str)
async def test_what_is_anothers_is_missing(operation: Operation, served: House) -> None:
    ids = await existing(served)
    before = await ask(served, _by_id("get_turn"), "ann", ids)
    missing = told(await ask(served, operation, "ann", MISSING))
    assert missing[0] == 404
    for name in ("bob", "other-ann"):
        assert told(await ask(served, operation, name, ids)) == missing
        assert told(await ask(served, operation, name, MISSING)) == missing
    assert told(await ask(served, _by_id("get_turn"), "ann", ids)) == told(before)
    right = await ask(served, operation, "ann", ids)
    assert right.is_success, right.text


@pytest.mark.parametrize(
    "operation", [each for each in SECURED if not each.names_something], ids=str
)
async def test_lists_and_new_ones_show_nothing_of_others(
    operation: Operation, served: House
) -> None:
    session = await served.session(title="ann's")
    async with served.worker():  # whoever asks for a completion waits for it
        answers = [await ask(served, operation, name, MISSING) for name in ("bob", "other-ann")]
    for answer in answers:
        assert answer.is_success
        assert session not in answer.text
        assert "ann's" not in answer.text


def _by_id(wanted: str) -> Operation:
    return next(operation for operation in OPERATIONS if operation.id == wanted)
