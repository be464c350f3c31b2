"""Files: given, checked, listed, taken, and shown to the model that a turn asks."""

import hashlib
import os
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from faults.turns.agents import in_rounds
from faults.turns.processes import workers
from faults.turns.workspace import Workspace
from lango.adk.artifacts import SqlArtifactService
from lango.config.server import FileSettings
from lango.core.messages.messages import Media
from lango.core.turns.events import Completed
from lango.providers.scripted import ScriptedProvider
from lango.store.files.contents import CHUNK
from tests.server.served_apps import ServedApp, served_app

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40  # more than a row of the history keeps
BIG = b"\x89PNG\r\n\x1a\n" + os.urandom(2 * CHUNK)  # three chunks, the last one short
PNG_TYPE, TEXT = "image/png", "text/plain"


async def upload(
    served: ServedApp, session: str, content: Any, kind: str | None = PNG_TYPE, name: str = "a.png"
) -> httpx.Response:
    headers = {"Content-Type": kind} if kind else {}
    async with served.client() as client:
        path = f"/v1/sessions/{session}/files"
        return await client.post(path, params={"name": name}, content=content, headers=headers)


def adk_session(served: ServedApp) -> dict[str, Any]:
    """Ann's session "chat" as the arguments of ADK's artifact services."""
    return {"app_name": served.agent, "user_id": "ann", "session_id": "chat"}


async def listed(served: ServedApp, session: str) -> list[dict[str, Any]]:
    async with served.client() as client:
        return (await client.get(f"/v1/sessions/{session}/files")).json()["files"]


async def take(served: ServedApp, session: str, name: str, **params: Any) -> httpx.Response:
    async with served.client() as client:
        path = httpx.URL(f"http://localhost/v1/sessions/{session}/files/{name}")
        return await client.get(path, params=params)


def refused(answer: httpx.Response, status: int, kind: str, words: str = "") -> None:
    body = answer.json()
    assert (answer.status_code, body["type"]) == (status, f"urn:lango:error:{kind}")
    assert words in body.get("detail", body["title"])


async def test_a_file_comes_back_as_it_was_given(served: ServedApp) -> None:
    session = await served.session()
    answer = await upload(served, session, BIG)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body.pop("created")
    digest = hashlib.sha256(BIG).hexdigest()
    assert body == {
        "name": "a.png",
        "version": 0,
        "type": PNG_TYPE,
        "size": len(BIG),
        "sha256": digest,
    }
    assert answer.headers["location"] == f"/v1/sessions/{session}/files/a.png"
    taken = await take(served, session, "a.png")
    assert taken.content == BIG
    assert taken.headers["content-type"] == PNG_TYPE
    assert taken.headers["content-length"] == str(len(BIG))
    assert taken.headers["content-disposition"] == "attachment; filename*=UTF-8''a.png"
    assert taken.headers["x-content-type-options"] == "nosniff"
    assert taken.headers["etag"] == f'"{digest}"'


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (CHUNK - 1, CHUNK), (CHUNK, len(BIG) - 1), (5, 2 * CHUNK)]
)
async def test_a_part_of_a_file(first: int, last: int, served: ServedApp) -> None:
    session = await served.session()
    etag = f'"{(await upload(served, session, BIG)).json()["sha256"]}"'
    headers = {"Range": f"bytes={first}-{last}", "If-Range": etag}
    async with served.client() as client:
        part = await client.get(f"/v1/sessions/{session}/files/a.png", headers=headers)
    assert part.status_code == 206
    assert part.content == BIG[first : last + 1]
    assert part.headers["content-range"] == f"bytes {first}-{last}/{len(BIG)}"
    assert part.headers["etag"] == etag


async def test_a_part_after_the_end_of_a_file(served: ServedApp) -> None:
    session = await served.session()
    await upload(served, session, BIG)
    headers = {"Range": f"bytes={len(BIG)}-"}
    async with served.client() as client:
        refusal = await client.get(f"/v1/sessions/{session}/files/a.png", headers=headers)
    refused(refusal, 416, "requested-range-not-satisfiable")
    assert refusal.headers["content-range"] == f"bytes */{len(BIG)}"


async def test_the_same_name_again_is_a_new_version(served: ServedApp) -> None:
    session = await served.session()
    for version, data in enumerate((b"one", b"two")):
        assert (await served.file(session, "a.txt", data, TEXT))["version"] == version
    assert [file["version"] for file in await listed(served, session)] == [1]
    assert (await take(served, session, "a.txt")).content == b"two"
    assert (await take(served, session, "a.txt", version=0)).content == b"one"
    assert (await take(served, session, "a.txt", version=2)).status_code == 404


async def test_who_sends_a_file_again_gets_the_version_there_is(served: ServedApp) -> None:
    session = await served.session()
    first = await served.file(session, "a.txt", b"one", TEXT)
    assert await served.file(session, "a.txt", b"one", TEXT) == first
    second = await served.file(session, "a.txt", b"one", "text/markdown")
    assert (second["version"], second["type"]) == (1, "text/markdown")


@pytest.mark.parametrize("name", ["plan b/ü\u202e 2.pdf", "a/../b", "%2e%2e", 'a"; b'])
async def test_a_file_may_be_called_almost_anything(name: str, served: ServedApp) -> None:
    session = await served.session()
    made = await upload(served, session, b"text", TEXT, name)
    assert (made.status_code, made.json()["name"]) == (201, name)
    async with served.client() as client:
        taken = await client.get(httpx.URL(f"http://localhost{made.headers['location']}"))
    assert taken.content == b"text"
    assert taken.headers["content-disposition"].isascii()


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "a\0b", "\x85", "..", "user:shared.txt"])
async def test_a_name_that_is_none_is_refused(name: str, sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    refused(await upload(sqlite_served, session, b"text", TEXT, name), 422, "invalid-request")
    assert await listed(sqlite_served, session) == []


async def test_files_are_listed_by_name_in_pages(served: ServedApp) -> None:
    session, names = await served.session(), [f"{n:02}.txt" for n in range(5)]
    for name in reversed(names):
        await served.file(session, name, name.encode(), TEXT)
    pages: list[list[str]] = []
    params: dict[str, Any] | None = {"limit": 2}
    async with served.client() as client:
        while params is not None:
            page = (await client.get(f"/v1/sessions/{session}/files", params=params)).json()
            pages.append([file["name"] for file in page["files"]])
            params = {"limit": 2, "after": page["next"]} if page["next"] else None
    assert pages == [names[:2], names[2:4], names[4:]]


async def test_tools_and_clients_see_the_same_files(served: ServedApp) -> None:
    session = await served.session(alias="chat")
    await served.file(session, "given.png", PNG, PNG_TYPE)
    session_names = adk_session(served)
    artifacts = SqlArtifactService(served.process.store, tenant=served.tenant)
    part = await artifacts.load_artifact(filename="given.png", **session_names)
    assert part is not None
    assert part.inline_data is not None
    assert (part.inline_data.data, part.inline_data.mime_type) == (PNG, PNG_TYPE)
    made = {"inline_data": {"mime_type": "evil\r\nx: y", "data": b"made"}}
    await artifacts.save_artifact(filename="made.bin", artifact=made, **session_names)
    assert [file["name"] for file in await listed(served, session)] == ["given.png", "made.bin"]
    taken = await take(served, session, "made.bin")
    assert (taken.content, taken.headers["content-type"]) == (b"made", "application/octet-stream")


async def test_what_a_rewind_took_away_is_no_file(served: ServedApp) -> None:
    session = await served.session(alias="chat")
    await served.file(session, "a.txt", b"text", TEXT)
    session_names = adk_session(served)
    nothing = {"inline_data": {"mime_type": "application/octet-stream", "data": b""}}
    artifacts = SqlArtifactService(served.process.store, tenant=served.tenant)
    await artifacts.save_artifact(filename="a.txt", artifact=nothing, **session_names)
    assert await listed(served, session) == []
    assert (await take(served, session, "a.txt")).status_code == 404


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (None, PNG),
        ("application/x-msdownload", b"MZ"),
        ("image/svg+xml", b"<svg/>"),
        ("image/jpeg", PNG),
        (PNG_TYPE, b"PNG"),
        (TEXT, PNG),
        (TEXT, "ä".encode("latin-1")),
        ("text/plain; charset=latin-1", b"text"),
    ],
    ids=["unsaid", "foreign", "SVG", "not JPEG", "not PNG", "not text", "not UTF-8", "charset"],
)
async def test_a_file_is_of_a_type_that_is_taken_and_of_the_one_it_says(
    kind: str | None, data: bytes, sqlite_served: ServedApp
) -> None:
    session = await sqlite_served.session()
    refused(await upload(sqlite_served, session, data, kind), 415, "media-type")
    assert await listed(sqlite_served, session) == []


async def test_an_empty_file_is_refused(sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    refused(await upload(sqlite_served, session, b"", TEXT), 400, "invalid-body", "empty")


async def test_a_file_of_the_limit_is_kept_and_one_above_is_not(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    limits = FileSettings(max_bytes=1_000, types=[TEXT])
    async with served_app(sqlite_workspace, tenant, files=limits) as served:
        session = await served.session()
        refused(await upload(served, session, b"x" * 1_001, TEXT), 413, "body-too-large", "1000")
        refused(await upload(served, session, PNG), 415, "media-type", TEXT)
        assert await listed(served, session) == []
        assert (await upload(served, session, b"x" * 1_000, TEXT)).status_code == 201


async def test_a_file_without_a_length_is_read_no_further_than_the_limit(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    sent, piece = 0, b"x" * 1_000

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += len(piece)
            yield piece

    async with served_app(sqlite_workspace, tenant, files=FileSettings(max_bytes=10_000)) as served:
        session = await served.session()
        refused(await upload(served, session, endless(), TEXT), 413, "body-too-large")
        assert await listed(served, session) == []
    assert sent <= 10_000 + 2 * len(piece)


async def test_memory_does_not_grow_with_the_file(served: ServedApp) -> None:
    session, chunks = await served.session(), 16

    async def long() -> AsyncIterator[bytes]:
        for _ in range(chunks * 16):
            yield b"x" * (CHUNK // 16)

    await upload(served, session, b"what is made once, is made before", TEXT)
    tracemalloc.start()
    try:
        answer = await upload(served, session, long(), TEXT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.json()["size"] == chunks * CHUNK
    assert peak < chunks * CHUNK // 2


async def test_nothing_is_left_on_disk(
    sqlite_served: ServedApp, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    session = await sqlite_served.session()
    assert (await upload(sqlite_served, session, BIG)).status_code == 201
    refused(await upload(sqlite_served, session, BIG, "image/gif"), 415, "media-type")
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_a_deleted_session_takes_its_files_along(served: ServedApp) -> None:
    session = await served.session(alias="chat")
    await served.file(session, "a.txt", b"text", TEXT)
    async with served.client() as client:
        await client.delete(f"/v1/sessions/{session}")
    again = await served.session(alias="chat")
    assert await listed(served, again) == []
    refused(await upload(served, session, b"text", TEXT), 404, "session-not-found")


async def shown(served: ServedApp, turn: str) -> list[Media]:
    """What the model is shown when a worker runs the turn."""
    seen = ScriptedProvider(rule=in_rounds)
    async with served.worker(provider=seen):
        ended = await served.turns().wait(turn)
    assert (ended.state, ended.error) == (Completed.type, None)
    return [media for message in seen.requests[-1].messages for media in message.media]


async def test_the_model_sees_the_files_of_a_turn(served: ServedApp) -> None:
    session = await served.session()
    await served.file(session, "a.png", PNG, PNG_TYPE)
    await served.file(session, "b.txt", b"text", TEXT)
    turn = await served.turn(session, "What is this?", files=["b.txt", "a.png", "b.txt"])
    expected = [Media(TEXT, b"text", name="b.txt"), Media(PNG_TYPE, PNG, name="a.png")]
    assert await shown(served, turn) == expected
    assert await shown(served, await served.turn(session, "And now?")) == expected
    async with served.client() as client:
        body = (await client.get(f"/v1/turns/{turn}")).json()
        text = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
    assert body["files"] == [{"name": "b.txt", "version": 0}, {"name": "a.png", "version": 0}]
    assert text[0]["content"] == "What is this?"


async def test_a_turn_is_about_the_version_there_was_when_it_was_handed_in(
    served: ServedApp,
) -> None:
    session = await served.session()
    await served.file(session, "a.txt", b"old", TEXT)
    turn = await served.turn(session, "hi", files=["a.txt"])
    await served.file(session, "a.txt", b"new", TEXT)
    assert [media.data for media in await shown(served, turn)] == [b"old"]


async def test_a_turn_that_lost_its_worker_still_has_its_files(served: ServedApp) -> None:
    session, workspace = await served.session(), served.process.workspace
    await served.file(session, "a.png", PNG, PNG_TYPE)
    with workers(workspace) as (doomed,):
        turn = await served.turn(session, 'call hold {"name": "go"}', files=["a.png"])
        await workspace.effects.wait(lambda effects: "held go" in effects)
        doomed.kill()
    (workspace.folder / "go").touch()
    assert await shown(served, turn) == [Media(PNG_TYPE, PNG, name="a.png")]


async def test_a_file_that_is_not_there_is_named(served: ServedApp) -> None:
    session, other = await served.session(), await served.session()
    await served.file(other, "theirs.txt", b"text", TEXT)
    async with served.client() as client:
        body = {"message": "hi", "files": ["theirs.txt"]}
        answer = await client.post(f"/v1/sessions/{session}/turns", json=body)
    refused(answer, 422, "unknown-file", "'theirs.txt'")


async def test_a_file_that_is_gone_when_the_turn_begins_ends_it(served: ServedApp) -> None:
    session = await served.session(alias="chat")
    await served.file(session, "a.txt", b"text", TEXT)
    turn = await served.turn(session, "hi", files=["a.txt"])
    artifacts = SqlArtifactService(served.process.store, tenant=served.tenant)
    session_names = adk_session(served)
    await artifacts.delete_artifact(filename="a.txt", **session_names)
    async with served.worker():
        ended = await served.turns().wait(turn)
    assert ended.state == "failed"
    assert ended.error is not None
    assert (ended.error["type"], "'a.txt'" in ended.error["message"]) == ("UnknownFileError", True)


async def test_a_key_means_a_message_with_its_files(served: ServedApp) -> None:
    session = await served.session()
    for name in ("a.txt", "b.txt"):
        await served.file(session, name, b"text", TEXT)
    path, key = f"/v1/sessions/{session}/turns", {"Idempotency-Key": "one"}
    async with served.client() as client:

        async def hand_in(*files: str) -> httpx.Response:
            body = {"message": "hi", "files": list(files)}
            return await client.post(path, json=body, headers=key)

        first = await hand_in("a.txt")
        await served.file(session, "a.txt", b"newer", TEXT)
        again = await hand_in("a.txt")
        assert (again.status_code, again.json()) == (202, first.json())
        refused(await hand_in("b.txt"), 409, "turn-conflict")
        refused(await hand_in(), 409, "turn-conflict")
