"""What a key may use: requests in a minute, turns at once, money in a day."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI

from faults.turn_place import Place, process
from lango.core.ids import new_id
from lango.core.keys import KeyLimits
from lango.core.model_calls import Attempt, ModelCall
from lango.core.turn_states import NewTurn
from lango.server.app import create_app
from lango.server.backend import ServerOptions
from lango.server.identity import Credentials, Keys
from lango.store.keys import KeyStore, today
from lango.store.model_calls import ModelCallStore
from lango.store.sessions import SqlSessionStore
from lango.store.turns import SqlTurnStore
from tests.server.doors import Clock, knock, refused
from tests.server.places import PlaceBackend, client_of
from tests.store.rows import created, key


async def test_requests_in_a_minute(
    app: FastAPI, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann", limits=KeyLimits(requests=6))
    free = await keys.create(tenant, user="ann")
    for _ in range(6):
        assert (await knock(app, bearer=made.text)).status_code == 200
    for _ in range(3):  # being refused costs nothing
        answer = await knock(app, bearer=made.text)
        refused(answer, 429, "may make 6 requests a minute")
        assert answer.headers["retry-after"] == "10"
    assert (await knock(app, bearer=free.text)).status_code == 200
    clock.time += 9.5
    answer = await knock(app, bearer=made.text)
    refused(answer, 429, "6 requests")
    assert answer.headers["retry-after"] == "1"
    clock.time += 1
    assert (await knock(app, bearer=made.text)).status_code == 200
    refused(await knock(app, bearer=made.text), 429, "6 requests")
    clock.time += 3600
    for _ in range(6):  # a bucket is full at some time
        assert (await knock(app, bearer=made.text)).status_code == 200
    refused(await knock(app, bearer=made.text), 429, "6 requests")


async def test_turns_at_once(
    app: FastAPI, store: SqlSessionStore, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="u", limits=KeyLimits(turns=2))
    turns = SqlTurnStore(store.database)
    await created(store, key(tenant))
    first = await turns.submit(key(tenant), NewTurn({"text": "1"}, key_id=made.key.id))
    assert (await knock(app, "/turn", method="POST", bearer=made.text)).status_code == 200
    await turns.submit(key(tenant), NewTurn({"text": "2"}, key_id=made.key.id))
    answer = await knock(app, "/turn", method="POST", bearer=made.text)
    refused(answer, 429, "may have 2 turns at once")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await knock(app, bearer=made.text)).status_code == 200  # other requests go on
    await turns.cancel(tenant, first.turn.id)
    assert (await knock(app, "/turn", method="POST", bearer=made.text)).status_code == 200


async def test_money_in_a_day(
    app: FastAPI,
    store: SqlSessionStore,
    keys: KeyStore,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since = today()
    for home in ("lango.store.keys.today", "lango.server.limits.today"):
        monkeypatch.setattr(home, lambda: since)  # though midnight may come
    made = await keys.create(tenant, user="u", limits=KeyLimits(cost=0.5))
    turns, calls = SqlTurnStore(store.database), ModelCallStore(store.database)

    async def spend(session_id: str, price: float) -> None:
        await created(store, key(tenant, session_id))
        new = NewTurn({"text": "?"}, key_id=made.key.id)
        turn = (await turns.submit(key(tenant, session_id), new)).turn
        moment = since.timestamp() + 1
        told = (1, new_id("mc"), ("a", "u", session_id), turn.invocation_id)
        attempt = Attempt("p", "m", moment, moment)
        await calls.add(tenant, [ModelCall(attempt, *told, price=price)])

    await spend("s", 0.25)
    assert (await knock(app, "/turn", method="POST", bearer=made.text)).status_code == 200
    await spend("t", 0.25)
    for _ in range(2):
        answer = await knock(app, "/turn", method="POST", bearer=made.text)
        refused(answer, 429, "may spend $0.5 a day (UTC)")
        left = (since + timedelta(days=1) - datetime.now(UTC)).total_seconds()
        assert left <= int(answer.headers["retry-after"]) <= 24 * 3600 + 1
        await store.delete(key(tenant, "t"))  # is no refund
    tomorrow = since + timedelta(days=1)
    monkeypatch.setattr("lango.server.limits.today", lambda: tomorrow)
    assert (await knock(app, "/turn", method="POST", bearer=made.text)).status_code == 200


async def test_turns_over_http_count_towards_their_key(place: Place, tenant: str) -> None:
    async with process(place, dead_after=60.0) as here:
        identity = Credentials(Keys(here.store.database))
        app = create_app(PlaceBackend(here), identity, ServerOptions(apps=(place.app,)))
        keys = KeyStore(here.store.database)
        made = await keys.create(tenant, user="ann", limits=KeyLimits(turns=1))
        other = await keys.create(tenant, user="ann")
        async with (
            _client(app, made.text) as client,
            _client(app, other.text) as unlimited,
        ):
            session = (await client.post("/v1/sessions", json={"app": place.app})).json()["id"]
            path = f"/v1/sessions/{session}/turns"
            first = await client.post(path, json={"message": "one"})
            assert first.status_code == 202, first.text
            assert await keys.open_turns(made.key.id) == 1
            refused(await client.post(path, json={"message": "two"}), 429, "1 turns at once")
            assert (await unlimited.post(path, json={"message": "two"})).status_code == 202
            await client.post(f"/v1/turns/{first.json()['id']}/cancel")
            assert (await client.post(path, json={"message": "three"})).status_code == 202


def _client(app: FastAPI, text: str) -> httpx.AsyncClient:
    return client_of(httpx.ASGITransport(app), "http://localhost", text)
