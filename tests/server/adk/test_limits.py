"""Limits of files, quotas and sizes hold for every way into a session."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from google.adk.events.event import Event
from google.adk.sessions.session import Session

from faults.turns.workspace import Workspace
from lango.adk.sessions.service import SessionServiceAdapter
from lango.config.server import FileSettings, QuotaSettings
from lango.errors import StoreUnavailableError
from tests.server.adk.twins import Caller
from tests.server.served_apps import ServedApp, served_app

PNG = b"\x89PNG\r\n\x1a\n"


@pytest_asyncio.fixture
async def tight(sqlite_workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """A server that takes small pictures, few bytes and a short history."""
    files = FileSettings(max_bytes=200, types=["image/png"])
    quotas = QuotaSettings(file_bytes=250, history_tokens=10_000)
    async with served_app(
        sqlite_workspace, tenant, adk_routes="/adk", files=files, quotas=quotas
    ) as opened:
        yield opened


@pytest_asyncio.fixture
async def caller(tight: ServedApp) -> AsyncIterator[Caller]:
    async with calling(tight) as web:
        yield Caller(web, tight.agent)


def calling(opened: ServedApp) -> httpx.AsyncClient:
    web = opened.client()
    web.base_url = "http://localhost/adk/"
    return web


def picture(size: int, kind: str = "image/png") -> dict[str, Any]:
    data = base64.b64encode(PNG + b"x" * (size - len(PNG))).decode()
    return {"inlineData": {"mimeType": kind, "data": data}}


def said(*parts: Any, **more: Any) -> dict[str, Any]:
    content = {"role": "user", "parts": list(parts)}
    return {"author": "user", "invocationId": "i", "content": content, **more}


def nested(part: dict[str, Any]) -> dict[str, Any]:
    return {"functionResponse": {"id": "c", "name": "f", "response": {}, "parts": [part]}}


async def save(caller: Caller, artifact: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"filename": "a", "artifact": artifact, **more}
    return await caller.web.post(f"{caller.sessions}/s1/artifacts", json=body)


async def load(caller: Caller, path: str) -> int:
    return (await caller.web.get(f"{caller.sessions}/s1/artifacts/{path}")).status_code


async def test_data_in_messages_counts_as_files(tight: ServedApp, caller: Caller) -> None:
    await caller.create()
    session = (await caller.web.get("http://localhost/v1/sessions")).json()["sessions"][0]["id"]
    turns = f"http://localhost/v1/sessions/{session}/turns"
    await tight.file(session, "a.png", PNG + b"x" * 92, "image/png")
    async with asyncio.timeout(10.0):  # no worker would end a turn that is accepted
        assert (await caller.run("Look", picture(201))).status_code == 413
        assert (await caller.run("Look", picture(180))).status_code == 429
    assert (await caller.web.get(turns)).json()["turns"] == []


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([picture(150)], 200),
        ([picture(150), picture(150)], 429),
        ([picture(201)], 413),
        ([picture(20, "text/html")], 415),
        ([nested(picture(20, "text/html"))], 415),
        ([nested(picture(201))], 413),
        ([{"text": "word " * 20_000}], 429),
    ],
)
async def test_restored_events_count(caller: Caller, parts: list[Any], status: int) -> None:
    answer = await caller.create(events=[said(*parts)])
    assert answer.status_code == status, answer.text
    assert len((await caller.web.get(caller.sessions)).json()) == (status == 200)


async def test_restored_events_count_together(caller: Caller) -> None:
    events = [said({"text": "word " * 3_000})]
    answers = [await caller.create(sessionId=f"s{n}", events=events) for n in range(9)]
    assert (answers[0].status_code, answers[-1].status_code) == (200, 429)


@pytest.mark.parametrize(
    ("artifact", "more", "status"),
    [
        ({"text": "x" * 200}, {}, 200),
        ({"text": "x" * 251}, {}, 429),
        ({"text": "x"}, {"customMetadata": {"a": "x" * 251}}, 429),
        ({"text": "x"}, {"customMetadata": {"a": "x" * 20_000}}, 413),
        ({"fileData": {"fileUri": "x" * 20_000}}, {}, 413),
        ({"text": "x", "functionCall": {"name": "f", "args": {"a": "x"}}}, {}, 400),
        ({"text": "x", **nested(picture(20, "text/html"))}, {}, 400),
        (picture(201), {}, 413),
    ],
)
async def test_all_that_an_artifact_stores_counts(
    caller: Caller, artifact: dict[str, Any], more: dict[str, Any], status: int
) -> None:
    await caller.create()
    answer = await save(caller, artifact, **more)
    assert answer.status_code == status, answer.text


EMPTY: dict[str, Any] = {}


@pytest.mark.parametrize(
    "parts",
    [
        [EMPTY] * 1_001,
        [nested(EMPTY)] * 501,
        [{"function_response": {"parts": [EMPTY] * 1_001}}],
    ],
)
async def test_more_parts_than_1000_are_refused(caller: Caller, parts: list[Any]) -> None:
    await caller.create()
    answer = await caller.run(*parts)
    assert (answer.status_code, "1000" in answer.text) == (422, True)
    restored = await caller.create(sessionId="s2", events=[said(*parts[:600]), said(*parts[:600])])
    assert (restored.status_code, "1000" in restored.text) == (400, True)


@pytest.mark.parametrize("parts", [3, "text", {"a": 1}, [3], [{"functionResponse": 3}]])
async def test_parts_of_another_form_are_refused(caller: Caller, parts: Any) -> None:
    await caller.create()
    body = caller.body() | {"newMessage": {"role": "user", "parts": parts}}
    assert (await caller.web.post("run", json=body)).status_code == 422
    event = {"author": "user", "content": {"parts": parts}}
    assert (await caller.create(sessionId="s2", events=[event])).status_code == 400


async def test_more_events_than_1000_are_refused(caller: Caller) -> None:
    answer = await caller.create(events=[said({"text": "a"})] * 1_001)
    assert (answer.status_code, "1000" in answer.text) == (422, True)


@pytest.mark.parametrize(
    "wrong", [said({"text": "b"}, id="a\nb"), said({"text": "b"}, invocationId="i\n")]
)
async def test_a_session_with_an_event_that_cannot_be_stored_is_not_created(
    caller: Caller, wrong: dict[str, Any]
) -> None:
    assert (await caller.create(events=[said({"text": "a"}), wrong])).status_code == 400
    assert (await caller.create(events=[said({"text": "a"})])).status_code == 200


async def test_a_session_that_cannot_be_filled_is_deleted(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SessionServiceAdapter.append_event

    async def failing(self: SessionServiceAdapter, session: Session, event: Event) -> Event:
        if event.id == "last":
            raise StoreUnavailableError
        return await append(self, session, event)

    monkeypatch.setattr(SessionServiceAdapter, "append_event", failing)
    events = [said({"text": "a"}), said({"text": "b"}, id="last")]
    assert (await caller.create(events=events)).status_code == 503
    assert (await caller.web.get(caller.sessions)).json() == []


async def test_references_that_lead_nowhere(adk_served: ServedApp) -> None:
    async with calling(adk_served) as web:
        caller = Caller(web, adk_served.agent)
        await caller.create()
        of = f"artifact://apps/{adk_served.agent}/users/ann/sessions/s1/artifacts"
        for uri, status in ((f"{of}/a/versions/0", 400), (f"{of}/b/versions/{'9' * 30}", 404)):
            await web.delete(f"{caller.sessions}/s1/artifacts/a")
            part = {"fileData": {"fileUri": uri, "mimeType": "text/plain"}}
            assert (await save(caller, part)).status_code == 200
            assert await load(caller, "a") == status
        assert await load(caller, f"a/versions/{'9' * 18}") == 404
        assert await load(caller, f"a?version={1 << 40}") == 404
