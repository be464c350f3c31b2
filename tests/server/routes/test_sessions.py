"""Sessions over HTTP: create, list, look, rename, delete, and page through what was said."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.server.served_apps import ServedApp


async def made(client: httpx.AsyncClient, served: ServedApp, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/sessions", json={"app": served.agent, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_session_is_created_and_found_by_its_public_id(served: ServedApp) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/sessions", json={"app": served.agent, "title": "Trip"})
        session = answer.json()
        assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
        assert session["id"].startswith("ses_")
        assert (session["title"], session["app"]) == ("Trip", served.agent)
        assert (session["messages"], session["tokens"]) == (0, 0)
        found = await client.get(answer.headers["location"])
    assert (found.status_code, found.json()) == (200, session)


async def test_the_first_message_becomes_the_title(served: ServedApp) -> None:
    async with served.client() as client:
        path = f"/v1/sessions/{(await made(client, served))['id']}"
        assert (await client.get(path)).json()["title"] == ""
        for message in ("Where is my parcel?", "Hello?"):
            await client.post(f"{path}/turns", json={"message": message})
        assert (await client.get(path)).json()["title"] == "Where is my parcel?"


async def test_an_alias_is_taken_once(served: ServedApp) -> None:
    async with served.client() as client, served.client("bob") as bob:
        first = await made(client, served, alias="mine")
        assert first["alias"] == "mine"
        assert first["id"] != "mine"
        again = await client.post("/v1/sessions", json={"app": served.agent, "alias": "mine"})
        assert (again.status_code, again.json()["type"]) == (409, "urn:lango:error:session-exists")
        assert (await made(bob, served, alias="mine"))["id"] != first["id"]


async def test_a_key_gives_one_session(served: ServedApp) -> None:
    async with served.client(idempotency_key="k") as client:
        both = await asyncio.gather(*(made(client, served, title="t") for _ in range(2)))
        assert both[0]["id"] == both[1]["id"]
        for other in ({"alias": "other"}, {"app": "no-such-app"}):
            body = {"app": served.agent, **other}
            refused = await client.post("/v1/sessions", json=body)
            assert refused.status_code in (409, 422), refused.text
        listed = (await client.get("/v1/sessions")).json()
    assert [one["id"] for one in listed["sessions"]] == [both[0]["id"]]


async def test_a_key_belongs_to_its_user(served: ServedApp) -> None:
    headers = {"Idempotency-Key": "k"}
    async with served.client() as ann, served.client("bob") as bob:
        body = {"app": served.agent}
        answers = [
            await each.post("/v1/sessions", json=body, headers=headers) for each in (ann, bob)
        ]
    assert answers[0].json()["id"] != answers[1].json()["id"]


async def test_pages_show_every_session_once_the_last_active_first(served: ServedApp) -> None:
    async with served.client() as client:
        ids = [(await made(client, served, title=f"t{n}"))["id"] for n in range(7)]
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query: dict[str, Any] = {"limit": 3} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/v1/sessions", params=query)).json()
            seen += [one["id"] for one in page["sessions"]]
            cursor = page["next"]
            if cursor is None:
                break
    assert seen == ids[::-1]


async def test_titles_are_searched(served: ServedApp) -> None:
    async with served.client() as client:
        trip = await made(client, served, title="A trip to Rome")
        await made(client, served, title="100% wool")
        for query, expected in (("TRIP", [trip["id"]]), ("0%_", []), ("\x00", [])):
            page = (await client.get("/v1/sessions", params={"q": query})).json()
            assert [one["id"] for one in page["sessions"]] == expected


async def test_an_app_can_be_asked_for(served: ServedApp) -> None:
    async with served.client() as client:
        session = await made(client, served)
        first = (await client.get("/v1/sessions", params={"app": served.agent})).json()
        assert [one["id"] for one in first["sessions"]] == [session["id"]]
        none = (await client.get("/v1/sessions", params={"app": "other"})).json()
    assert none == {"sessions": [], "next": None}


async def test_a_cursor_of_another_list_is_refused(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        answer = await client.get("/v1/sessions", params={"cursor": "nonsense"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:lango:error:invalid-id")


async def test_a_session_is_renamed(served: ServedApp) -> None:
    session = await served.session()
    async with served.client() as client:
        answer = await client.patch(f"/v1/sessions/{session}", json={"title": "New"})
        assert (answer.status_code, answer.json()["title"]) == (200, "New")
        assert (await client.get(f"/v1/sessions/{session}")).json() == answer.json()


async def test_a_deleted_session_is_gone_with_its_turns(served: ServedApp) -> None:
    session = await served.session()
    turn = await served.turn(session, "never")
    async with served.client() as client:
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        for path in (f"/v1/sessions/{session}", f"/v1/turns/{turn}"):
            assert (await client.get(path)).status_code == 404
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 404


async def test_only_agents_that_are_served_have_sessions(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        listed = (await client.get("/v1/agents")).json()
        answer = await client.post("/v1/sessions", json={"app": "other"})
    assert listed == {"agents": [{"app": sqlite_served.agent}]}
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:lango:error:unknown-app")


async def test_a_caller_without_a_user_sees_agents_alone(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client("no-user") as client:
        assert (await client.get("/v1/agents")).status_code == 200
        answer = await client.get("/v1/sessions")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:lango:error:forbidden")


async def _talk(served: ServedApp, session: str, count: int) -> None:
    async with served.worker():
        for number in range(count):
            await served.turns().wait(await served.turn(session, f"m{number}"))


async def test_messages_are_paged_both_ways(served: ServedApp) -> None:
    session = await served.session()
    await _talk(served, session, 4)
    path = f"/v1/sessions/{session}/messages"
    async with served.client() as client:
        whole = (await client.get(path)).json()
        assert (len(whole["messages"]), whole["before"]) == (8, None)
        numbers = [one["number"] for one in whole["messages"]]
        backward = await _backward(client, path)
        forward = await _forward(client, path)
        assert backward == forward == numbers
        nothing_yet = (await client.get(path, params={"after": numbers[-1]})).json()
    assert nothing_yet == {"messages": [], "before": None, "after": numbers[-1]}
    text = [(one["role"], one["content"]) for one in whole["messages"][:2]]
    assert text == [("user", "m0"), ("assistant", "You said: m0")]
    assert whole["messages"][0]["turn"] == whole["messages"][1]["turn"]


async def _backward(client: httpx.AsyncClient, path: str) -> list[int]:
    found: list[int] = []
    query: dict[str, int] = {"limit": 3}
    while True:
        page = (await client.get(path, params=query)).json()
        found[:0] = [one["number"] for one in page["messages"]]
        if page["before"] is None:
            return found
        query["before"] = page["before"]


async def _forward(client: httpx.AsyncClient, path: str) -> list[int]:
    found: list[int] = []
    query: dict[str, int] = {"limit": 3, "after": 0}
    while True:
        page = (await client.get(path, params=query)).json()
        if not page["messages"]:
            return found
        found += [one["number"] for one in page["messages"]]
        query["after"] = page["after"]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "before=-1", f"after={1 << 63}"])
async def test_a_page_that_cannot_be_is_refused(query: str, sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    async with sqlite_served.client() as client:
        answer = await client.get(f"/v1/sessions/{session}/messages?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["at"] == f"query.{query.partition('=')[0]}"
