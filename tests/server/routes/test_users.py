"""A user's data by HTTP: an admin deletes all of it, also while a turn of the user runs."""

import pytest

from faults.store.leftovers import leftovers
from lango.server.auth.callers import Caller
from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.sessions.entries import SessionRef
from tests.server.served_apps import ServedApp
from tests.store.rows import beside


@pytest.fixture
def looked_after(served: ServedApp) -> ServedApp:
    other = served.callers["other-ann"].tenant
    for name, tenant in (("admin", served.tenant), ("other-admin", other)):
        served.callers[name] = Caller(tenant, None, frozenset({"admin"}), f"key_{name}")
    return served


async def test_an_admin_deletes_a_user(looked_after: ServedApp) -> None:
    canary = f"canary{looked_after.tenant[-12:]}"
    session = await looked_after.session(title=canary)
    turn = await looked_after.turn(session, canary)
    kept = await looked_after.session("bob")
    store = SqlMemoryStore(looked_after.process.store.database)
    fact = NewMemory(canary, "", "user", 1.0, canary)
    await store.add(SessionRef(looked_after.user("ann")), [fact])
    async with looked_after.client("admin") as admin, looked_after.client("ann") as ann:
        assert (await ann.delete("/v1/users/ann")).status_code == 403
        answer = await admin.delete("/v1/users/ann", params={"app": "another"})
        assert answer.status_code == 404
        deleted = await admin.delete("/v1/users/ann")
        nothing = dict.fromkeys(("artifacts", "states", "model_calls", "credentials"), 0)
        expected = {"sessions": 1, "memories": 1, **nothing}
        assert (deleted.status_code, deleted.json()) == (200, expected)
        assert (await admin.delete("/v1/users/ann")).status_code == 404
        assert (await ann.get(f"/v1/turns/{turn}")).status_code == 404
    async with looked_after.client("bob") as bob:
        assert (await bob.get(f"/v1/sessions/{kept}")).status_code == 200
    async with beside(looked_after.process.workspace.url) as connection:
        assert await leftovers(connection, canaries=[canary]) == []


async def test_an_admin_of_another_tenant_deletes_nothing(looked_after: ServedApp) -> None:
    session = await looked_after.session()
    async with looked_after.client("other-admin") as admin:
        answers = [await admin.delete(f"/v1/users/{user}") for user in ("ann", "missing", "a/b")]
    assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[1].text)}
    async with looked_after.client("ann") as ann:
        assert (await ann.get(f"/v1/sessions/{session}")).status_code == 200


async def test_ids_with_slashes(looked_after: ServedApp) -> None:
    looked_after.callers["a/b"] = Caller(looked_after.tenant, "a/b", frozenset({"chat"}), "key")
    await looked_after.session("a/b")
    async with looked_after.client("admin") as admin:
        deleted = await admin.delete("/v1/users/a%2Fb")
    assert deleted.json()["sessions"] == 1
