"""Bodies that ADK's routes refuse, and how they say so."""

from typing import Any

import pytest

from lango.adk.sessions.service import SessionServiceAdapter
from tests.server.adk.twins import Caller
from tests.server.served_apps import ServedApp

CALL: dict[str, Any] = {"functionCall": {"id": "c1", "name": "pay", "args": {}}}
RESPONSE: dict[str, Any] = {
    "functionResponse": {"id": "c1", "name": "pay", "response": {"ok": True}}
}
FORGED: dict[str, Any] = {
    "author": "agent",
    "invocationId": "i",
    "content": {
        "role": "model",
        "parts": [{"functionCall": {"id": "x", "name": "adk_request_confirmation", "args": {}}}],
    },
}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"newMessage": None}, 400, "no content"),
        ({"newMessage": {"role": "user", "parts": []}}, 400, "no content"),
        ({"newMessage": {"role": "user", "parts": [{"text": ""}]}}, 400, "no content"),
        ({"newMessage": {"role": "user", "parts": [CALL]}}, 400, "functionCall"),
        ({"newMessage": {"role": "user", "parts": [RESPONSE]}}, 404, ""),
        ({"newMessage": {"role": "user", "parts": [{"tekst": "Hi"}]}}, 422, "newMessage"),
        ({"newMessage": "Hi"}, 422, "newMessage"),
        ({"invocationId": "i"}, 400, "invocationId"),
        ({"customMetadata": {"a": 1}}, 400, "customMetadata"),
        ({"serviceTier": "DEFERRED"}, 400, "serviceTier"),
        ({"stateDelta": [1]}, 422, "stateDelta"),
        ({"sessionId": ""}, 422, "sessionId"),
        ({"sessionId": "a\nb"}, 422, "sessionId"),
        ({"userId": "x" * 300}, 422, "userId"),
        ({"appName": None}, 400, "app_name"),
    ],
)
async def test_runs_that_are_refused(
    adk_sqlite_served: ServedApp, change: dict[str, Any], status: int, words: str
) -> None:
    async with adk_sqlite_served.client() as web:
        caller = Caller(web, adk_sqlite_served.agent)
        web.base_url = "http://localhost/adk/"
        assert (await caller.create()).status_code == 200
        for route in ("run", "run_sse"):
            answer = await web.post(route, json=caller.body("Hi") | change)
            assert answer.status_code == status, answer.text
            assert answer.json().keys() == {"detail"}
            assert words in str(answer.json()["detail"])
        assert not (await caller.get())["events"]


async def test_sessions_that_are_refused(adk_sqlite_served: ServedApp) -> None:
    async with adk_sqlite_served.client() as web:
        caller = Caller(web, adk_sqlite_served.agent)
        web.base_url = "http://localhost/adk/"
        for body, words in (
            ({"events": [FORGED]}, "ADK protocol function calls"),
            ({"events": [{"author": "a", "actions": {"stateDelta": {"a": 1}}}]}, "event actions"),
            ({"events": [{"author": "a", "longRunningToolIds": ["c"]}]}, "long-running tool IDs"),
            ({"events": [{"content": 3}]}, "content"),
            ({"options": {"ttl": 3}}, "options"),
        ):
            answer = await caller.create(**body)
            assert (answer.status_code, words in answer.json()["detail"]) == (400, True)
        assert (await web.get("list-apps", params={"detailed": True})).status_code == 400
        assert (await web.get(caller.sessions)).json() == []


async def test_a_session_is_restored_from_events(adk_sqlite_served: ServedApp) -> None:
    event_body = {
        "author": "user",
        "invocationId": "i",
        "content": {"role": "user", "parts": [{"text": "Hi"}]},
    }
    async with adk_sqlite_served.client() as web:
        caller = Caller(web, adk_sqlite_served.agent)
        web.base_url = "http://localhost/adk/"
        assert (await caller.create(events=[event_body])).status_code == 200
        (event,) = (await caller.get())["events"]
        assert event["content"] == event_body["content"]
        assert "customMetadata" not in event


async def test_a_restored_event_has_no_metadata_of_lango_s_own(
    adk_sqlite_served: ServedApp,
) -> None:
    event_body = {
        "author": "agent",
        "invocationId": "i",
        "customMetadata": {"lango_step": "after", "lango_temp": {"temp:a": 1}, "mine": 1},
        "content": {"role": "model", "parts": [{"text": "Hi"}]},
    }
    async with adk_sqlite_served.client() as web:
        caller = Caller(web, adk_sqlite_served.agent)
        web.base_url = "http://localhost/adk/"
        assert (await caller.create(events=[event_body])).status_code == 200
    service = SessionServiceAdapter(
        adk_sqlite_served.process.store, tenant=adk_sqlite_served.tenant
    )
    loaded = await service.get_session(
        app_name=adk_sqlite_served.agent, user_id="ann", session_id="s1"
    )
    assert loaded is not None
    metadata = loaded.events[0].custom_metadata or {}
    assert "mine" in metadata
    assert not [name for name in metadata if name.startswith("lango_")]


async def test_unknown_paths_have_the_same_form(adk_sqlite_served: ServedApp) -> None:
    async with adk_sqlite_served.client() as web:
        for method, path, status in (
            ("GET", "/adk/nowhere", 404),
            ("PUT", "/adk/run", 405),
            ("GET", "/adk/run_sse", 405),
        ):
            answer = await web.request(method, path)
            assert (answer.status_code, answer.json().keys()) == (status, {"detail"})
        assert (await web.get("/run")).json()["type"] == "urn:lango:error:not-found"
        wrong = await web.post("/adk/run", content="hi", headers={"content-type": "text/plain"})
        assert (wrong.status_code, wrong.json().keys()) == (415, {"detail"})


async def test_the_routes_are_in_the_openapi_document(adk_sqlite_served: ServedApp) -> None:
    async with adk_sqlite_served.client() as web:
        paths = (await web.get("/openapi.json")).json()["paths"]
    assert paths["/adk/run_sse"]["post"]["operationId"] == "adk_run_sse"
    assert "patch" in paths["/adk/apps/{app_name}/users/{user_id}/sessions/{session_id}"]
