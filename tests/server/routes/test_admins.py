"""Admins change and delete data of every user of their tenant, but act for none of them.

The matrix tests which data they may read.
"""

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from lango.server.auth.callers import Caller
from lango.server.auth.identity import USER_HEADER, Credentials, Keys
from lango.store.keys import KeyStore
from tests.server.auth.matrix import existing
from tests.server.served_apps import ServedApp

ADMIN = frozenset({"admin"})
FORBIDDEN_WORD = "urn:lango:error:forbidden"


@pytest_asyncio.fixture
async def looked_after(served: ServedApp) -> AsyncIterator[ServedApp]:
    """A server that also knows an admin, one who chats as well, and another tenant's."""
    other = served.callers["other-ann"].tenant
    served.callers["admin"] = Caller(served.tenant, None, ADMIN, "key_admin")
    served.callers["carl"] = Caller(served.tenant, "carl", ADMIN | {"chat"}, "key_carl")
    served.callers["other-admin"] = Caller(other, None, ADMIN, "key_other_admin")
    yield served


def ids(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {one["id"] for one in answer.json()["sessions"]}


async def test_an_admin_renames_cancels_and_deletes(looked_after: ServedApp) -> None:
    session = await looked_after.session(title="old")
    turn = await looked_after.turn(session, "never")
    async with looked_after.client("admin") as admin, looked_after.client("ann") as ann:
        path = f"/v1/sessions/{session}"
        assert (await admin.patch(path, json={"title": "new"})).json()["title"] == "new"
        assert (await admin.post(f"/v1/turns/{turn}/cancel")).json()["state"] == "cancelled"
        assert (await ann.get(path)).json()["title"] == "new"
        assert (await admin.delete(path)).status_code == 204
        assert (await ann.get(path)).status_code == 404


async def test_an_admin_acts_for_no_user(looked_after: ServedApp) -> None:
    async with looked_after.worker():
        found = await existing(looked_after)
    text, answer = {"message": "hi"}, {"call": "c", "approved": True}
    async with looked_after.client("admin") as admin, looked_after.client("carl") as carl:
        for path, body in (
            (f"/v1/sessions/{found.session}/turns", text),
            (f"/v1/turns/{found.turn}/approvals", answer),
        ):
            assert (await admin.post(path, json=body)).status_code == 403
            assert (await carl.post(path, json=body)).status_code == 404


async def test_whose_sessions_are_listed(looked_after: ServedApp) -> None:
    own = {name: await looked_after.session(name) for name in ("ann", "bob", "carl", "other-ann")}
    listed = "/v1/sessions"
    async with looked_after.client("carl") as carl, looked_after.client("admin") as admin:
        everybody = {own["ann"], own["bob"], own["carl"]}
        assert ids(await carl.get(listed)) == {own["carl"]}
        assert ids(await carl.get(listed, params={"everyone": "true"})) == everybody
        assert ids(await carl.get(listed, params={"user": "bob"})) == {own["bob"]}
        assert ids(await admin.get(listed)) == everybody
        assert ids(await admin.get(listed, params={"user": "stranger"})) == set()
    async with looked_after.client("ann") as ann:
        assert ids(await ann.get(listed, params={"user": "ann"})) == {own["ann"]}
        for query in ({"everyone": "true"}, {"user": "bob"}, {"user": "bob", "everyone": "true"}):
            for path in (listed, "/v1/usage"):
                refused = await ann.get(path, params=query)
                assert (refused.status_code, refused.json()["type"]) == (403, FORBIDDEN_WORD)


async def test_who_acts_for_a_user_is_no_admin_meanwhile(sqlite_served: ServedApp) -> None:
    """Else a backend with every scope would show one customer what is another's."""
    session = await sqlite_served.session("ann", title="ann's")
    database = sqlite_served.process.store.database
    key = await KeyStore(database).create(sqlite_served.tenant, scopes=("chat", "act_as", "admin"))
    sqlite_served.app.state.identity = Credentials(Keys(database))
    path = f"/v1/sessions/{session}"
    async with sqlite_served.client(key.text) as client:
        assert (await client.get(path)).status_code == 200
        as_bob = {USER_HEADER: "bob"}
        assert (await client.get(path, headers=as_bob)).status_code == 404
        everyone = {"everyone": "true"}
        refused = await client.get("/v1/sessions", params=everyone, headers=as_bob)
        assert refused.status_code == 403
        me = (await client.get("/v1/me", headers=as_bob)).json()
        assert me == {"tenant": sqlite_served.tenant, "user": "bob", "scopes": ["act_as", "chat"]}
        assert (await client.get("/v1/workload", headers=as_bob)).status_code == 403


async def test_who_one_is(looked_after: ServedApp) -> None:
    async with looked_after.client("carl") as carl, looked_after.client("no-user") as userless:
        me = (await carl.get("/v1/me")).json()
        assert me == {"tenant": looked_after.tenant, "user": "carl", "scopes": ["admin", "chat"]}
        assert (await userless.get("/v1/me")).json()["user"] is None
