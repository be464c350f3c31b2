"""What a key may use: requests in a minute, turns at once, money in a day."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI

from faults.turns.workspace import Workspace, turn_process
from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.ids import new_id
from lango.core.keys import KeyLimits
from lango.core.turns.states import NewTurn
from lango.server.app import create_app
from lango.server.auth.identity import Credentials, Keys
from lango.server.backend import ServerOptions
from lango.store.allowances import Allowances, today
from lango.store.keys import KeyStore
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import allowances
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.rows import Turn
from lango.store.turns.submit import SqlTurnStore
from tests.server.auth_app import Clock, auth_app, refused, request_to
from tests.server.served_apps import ProcessBackend, client_of
from tests.store.rows import created, key


async def _pass_time(store: SqlSessionStore, clock: Clock, caller: str, seconds: float) -> None:
    """Let time pass, for the process and for the database."""
    clock.time += seconds
    async with store.database.begin() as connection:
        statement = sa.update(allowances).where(allowances.c.caller == caller)
        await connection.execute(statement.values(next_request=allowances.c.next_request - seconds))


async def test_requests_in_a_minute(
    app: FastAPI, store: SqlSessionStore, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann", limits=KeyLimits(requests=6))
    free = await keys.create(tenant, user="ann")
    for _ in range(6):
        assert (await request_to(app, bearer=made.text)).status_code == 200
    for _ in range(3):  # being refused costs nothing
        answer = await request_to(app, bearer=made.text)
        refused(answer, 429, "may make 6 requests a minute")
        assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert (await request_to(app, bearer=free.text)).status_code == 200
    await _pass_time(store, clock, made.key.id, 10)
    assert (await request_to(app, bearer=made.text)).status_code == 200
    refused(await request_to(app, bearer=made.text), 429, "6 requests")
    await _pass_time(store, clock, made.key.id, 3600)
    for _ in range(6):  # a bucket is full at some time
        assert (await request_to(app, bearer=made.text)).status_code == 200
    refused(await request_to(app, bearer=made.text), 429, "6 requests")


async def test_servers_count_requests_together(
    store: SqlSessionStore, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann", limits=KeyLimits(requests=6))
    one, other = (auth_app(Credentials(Keys(store.database, clock=clock))) for _ in range(2))
    for app in (one, other) * 3:
        assert (await request_to(app, bearer=made.text)).status_code == 200
    for app in (one, other):
        refused(await request_to(app, bearer=made.text), 429, "may make 6 requests a minute")


async def test_a_server_takes_several_requests_of_a_minute_at_a_time(
    app: FastAPI, store: SqlSessionStore, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann", limits=KeyLimits(requests=90))

    async def counted() -> float:
        statement = sa.select(allowances.c.next_request).where(allowances.c.caller == made.key.id)
        return await store.database.read(lambda connection: connection.scalar(statement)) or 0.0

    assert (await request_to(app, bearer=made.text)).status_code == 200
    first = await counted()
    for _ in range(2):  # three were taken
        assert (await request_to(app, bearer=made.text)).status_code == 200
    assert await counted() == first
    assert (await request_to(app, bearer=made.text)).status_code == 200
    second = await counted()
    assert second > first
    clock.time += 11  # the other two have lapsed
    assert (await request_to(app, bearer=made.text)).status_code == 200
    assert await counted() > second


async def test_turns_at_once(
    app: FastAPI, store: SqlSessionStore, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="u", limits=KeyLimits(turns=2))
    turns = SqlTurnStore(store.database)
    await created(store, key(tenant))
    first = await turns.submit(key(tenant), NewTurn({"text": "1"}, key_id=made.key.id))
    assert (await request_to(app, "/turn", method="POST", bearer=made.text)).status_code == 200
    await turns.submit(key(tenant), NewTurn({"text": "2"}, key_id=made.key.id))
    answer = await request_to(app, "/turn", method="POST", bearer=made.text)
    refused(answer, 429, "Limit of 2 open turns")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await request_to(app, bearer=made.text)).status_code == 200  # other requests go on
    await turns.cancel(tenant, first.turn.id)
    assert (await request_to(app, "/turn", method="POST", bearer=made.text)).status_code == 200


async def test_money_in_a_day(
    app: FastAPI,
    store: SqlSessionStore,
    keys: KeyStore,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since = today()
    monkeypatch.setattr("lango.store.allowances.today", lambda: since)  # though midnight may come
    made = await keys.create(tenant, user="u", limits=KeyLimits(cost=0.5))
    turns, calls = SqlTurnStore(store.database), ModelCallStore(store.database)

    async def spend(session_id: str, price: float) -> None:
        await created(store, key(tenant, session_id))
        new = NewTurn({"text": "?"}, key_id=made.key.id)
        turn = (await turns.submit(key(tenant, session_id), new)).turn
        moment = since.timestamp() + 1
        result = (1, new_id("mc"), ("a", "u", session_id), turn.invocation_id)
        attempt = ModelAttempt("p", "m", moment, moment)
        await calls.add(tenant, [ModelCall(attempt, *result, price=price)])

    await spend("s", 0.25)
    assert (await request_to(app, "/turn", method="POST", bearer=made.text)).status_code == 200
    await spend("t", 0.25)
    for _ in range(2):
        answer = await request_to(app, "/turn", method="POST", bearer=made.text)
        refused(answer, 429, "may spend $0.5 a day (UTC)")
        left = (since + timedelta(days=1) - datetime.now(UTC)).total_seconds()
        assert left <= int(answer.headers["retry-after"]) <= 24 * 3600 + 1
        await store.delete(key(tenant, "t"))  # is no refund
    tomorrow = since + timedelta(days=1)
    monkeypatch.setattr("lango.store.allowances.today", lambda: tomorrow)
    assert (await request_to(app, "/turn", method="POST", bearer=made.text)).status_code == 200


async def test_money_is_looked_at_again_when_a_turn_starts(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns that were accepted together do not all run once the first has spent it."""
    since = today()
    monkeypatch.setattr("lango.store.allowances.today", lambda: since)  # though midnight may come
    async with turn_process(workspace, dead_after=60.0) as process:

        async def submit(session: str, key_id: str) -> Turn:
            return await process.turns.submit(
                workspace.app, "hi", session=session, key_id=key_id, cost_limit=0.5
            )

        spender = new_id("k")
        first, second = await submit("a", spender), await submit("b", spender)
        other = await submit("c", new_id("k"))
        moment = datetime.now(UTC).timestamp()
        result = (1, new_id("mc"), (workspace.app, "user", "a"), first.invocation_id)
        call = ModelCall(ModelAttempt("p", "m", moment, moment), *result, price=0.5)
        await ModelCallStore(process.store.database).add(process.turns.tenant, [call])
        async with process.worker():
            ended = [await process.turns.wait(turn.id) for turn in (second, other)]
        assert [turn.state for turn in ended] == ["failed", "completed"]
        assert ended[0].error is not None
        assert ended[0].error["type"] == "KeyLimitError"
        assert "may spend $0.5 a day" in ended[0].error["message"]


async def test_turns_over_http_at_once_stay_within_the_limit(
    workspace: Workspace, tenant: str
) -> None:
    async with turn_process(workspace, dead_after=60.0) as process:
        identity = Credentials(Keys(process.store.database))
        app = create_app(ProcessBackend(process), identity, ServerOptions(apps=(workspace.app,)))
        made = await KeyStore(process.store.database).create(
            tenant, user="ann", limits=KeyLimits(turns=2)
        )
        async with _client(app, made.text) as client:
            created = [
                (await client.post("/v1/sessions", json={"app": workspace.app})).json()["id"]
                for _ in range(12)
            ]
            answers = await asyncio.gather(
                *(
                    client.post(f"/v1/sessions/{session}/turns", json={"message": "hi"})
                    for session in created
                )
            )
        assert sorted(answer.status_code for answer in answers) == [202] * 2 + [429] * 10


async def test_turns_over_http_count_towards_their_key(workspace: Workspace, tenant: str) -> None:
    async with turn_process(workspace, dead_after=60.0) as process:
        identity = Credentials(Keys(process.store.database))
        app = create_app(ProcessBackend(process), identity, ServerOptions(apps=(workspace.app,)))
        keys = KeyStore(process.store.database)
        made = await keys.create(tenant, user="ann", limits=KeyLimits(turns=1))
        other = await keys.create(tenant, user="ann")
        async with (
            _client(app, made.text) as client,
            _client(app, other.text) as unlimited,
        ):
            session = (await client.post("/v1/sessions", json={"app": workspace.app})).json()["id"]
            path = f"/v1/sessions/{session}/turns"
            once = {"Idempotency-Key": "one"}
            first = await client.post(path, json={"message": "one"}, headers=once)
            assert first.status_code == 202, first.text
            assert await Allowances(process.store.database).open_turns(made.key.id) == 1
            refused(await client.post(path, json={"message": "two"}), 429, "Limit of 1 open turns")
            repeated = await client.post(path, json={"message": "one"}, headers=once)
            assert (repeated.status_code, repeated.json()["id"]) == (202, first.json()["id"])
            assert (await unlimited.post(path, json={"message": "two"})).status_code == 202
            await client.post(f"/v1/turns/{first.json()['id']}/cancel")
            assert (await client.post(path, json={"message": "three"})).status_code == 202


def _client(app: FastAPI, text: str) -> httpx.AsyncClient:
    return client_of(httpx.ASGITransport(app), "http://localhost", text)
