"""A user's memory by HTTP: listed, searched, deleted, and shown to no other user."""

from typing import Any

import httpx

from lango.server.auth.callers import Caller
from lango.store.memory.store import MAX_SHOWN, NewMemory, SqlMemoryStore
from lango.store.sessions.entries import SessionKey, SessionRef
from tests.server.served_apps import ServedApp
from tests.store.rows import said

PATH = "/v1/memory"


def memories(served: ServedApp) -> SqlMemoryStore:
    return SqlMemoryStore(served.process.store.database)


async def remember(served: ServedApp, *texts: str, name: str = "ann") -> None:
    entries = [NewMemory(text, "", "user", 1_760_000_000.25, text, {"n": 1}) for text in texts]
    await memories(served).add(SessionRef(served.user(name)), entries)


async def listed(served: ServedApp, name: str = "ann", **params: Any) -> dict[str, Any]:
    async with served.client(name) as client:
        answer = await client.get(PATH, params={"app": served.agent, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def texts(served: ServedApp, name: str = "ann", **params: Any) -> list[str]:
    return [entry["text"] for entry in (await listed(served, name, **params))["entries"]]


async def delete(served: ServedApp, path: str, name: str = "ann", **params: Any) -> httpx.Response:
    async with served.client(name) as client:
        return await client.delete(f"{PATH}{path}", params=params)


async def test_an_entry_is_shown_with_its_session(served: ServedApp) -> None:
    session = await served.session(alias="monday")
    ref = await served.process.store.locate(
        SessionKey(served.tenant, served.agent, "ann", "monday")
    )
    await served.process.store.append(ref, said("e1", "My cat is Minka."))
    await memories(served).add_session(ref)
    await remember(served, "a fact")
    own, said_there = (await listed(served))["entries"]
    assert own.pop("id").isdigit()
    assert own == {
        "text": "a fact",
        "role": "user",
        "author": "",
        "session": None,
        "alias": None,
        "metadata": {"n": 1},
        "at": "2025-10-09T08:53:20.250000Z",
    }
    assert (said_there["session"], said_there["alias"]) == (session, "monday")
    assert (said_there["author"], said_there["text"]) == ("user", "My cat is Minka.")


async def test_pages_of_the_list_and_of_a_search(served: ServedApp) -> None:
    await remember(served, *(f"fact {number}" for number in range(5)), "x" * (MAX_SHOWN + 1))
    await remember(served, "fact of another", name="bob")
    for query, newest in (({}, ["x" * MAX_SHOWN + "…"]), ({"query": "fact"}, [])):
        expected = [*newest, *(f"fact {number}" for number in (4, 3, 2, 1, 0))]
        found, after = list[str](), dict[str, Any]()
        while True:
            page = await listed(served, limit=2, **query, **after)
            found += [entry["text"] for entry in page["entries"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert found == expected
    assert await texts(served, query="3 fact", limit=1) == ["fact 3"]
    assert await texts(served, query="?!") == []
    assert await texts(served, query="absent") == []


async def test_one_entry_and_then_all(served: ServedApp) -> None:
    await remember(served, "first", "second", "third")
    await remember(served, "of bob", name="bob")
    third = (await listed(served))["entries"][0]["id"]
    for status in (204, 404):
        assert (await delete(served, f"/{third}")).status_code == status
    assert await texts(served) == ["second", "first"]
    for _ in range(2):
        assert (await delete(served, "", app=served.agent)).status_code == 204
        assert await texts(served) == []
    assert await texts(served, "bob") == ["of bob"]
    assert (await delete(served, "")).status_code == 422  # of which agent?


async def test_no_one_deletes_the_entry_of_another(served: ServedApp) -> None:
    await remember(served, "of ann")
    (entry,) = (await listed(served))["entries"]
    answers = [
        await delete(served, f"/{memory_id}", name)
        for name in ("bob", "other-ann")
        for memory_id in (
            entry["id"],
            "4611686018427387904",
            "none",
            "0",
            "9" * 40,
            "9" * 5000,
            "²",
        )
    ]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (404, answers[0].text),
    }
    assert await texts(served) == ["of ann"]


async def test_an_admin_names_the_user(served: ServedApp) -> None:
    served.callers["admin"] = Caller(served.tenant, None, frozenset({"admin"}), "key_admin")
    other = served.callers["other-ann"].tenant
    served.callers["other-admin"] = Caller(other, None, frozenset({"admin"}), "key_other")
    await remember(served, "of ann", "again of ann")
    (newest, _) = (await listed(served))["entries"]
    assert len(await texts(served, "admin", user="ann")) == 2
    assert await texts(served, "other-admin", user="ann") == []
    params = {"app": served.agent, "user": "bob"}
    async with served.client("ann") as ann, served.client("admin") as admin:
        assert (await ann.get(PATH, params=params)).status_code == 403
        assert (await ann.delete(PATH, params=params)).status_code == 403
        assert (await admin.get(PATH, params={"app": served.agent})).status_code == 403
    assert (await delete(served, f"/{newest['id']}", "other-admin")).status_code == 404
    assert (await delete(served, f"/{newest['id']}", "admin")).status_code == 204
    for name in ("other-admin", "admin"):
        answer = await delete(served, "", name, app=served.agent, user="ann")
        assert answer.status_code == 204
        assert (await texts(served) == []) is (name == "admin")
