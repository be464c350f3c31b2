"""Files over HTTP when an object store has their bytes."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from faults.turns.agents import in_rounds
from faults.turns.workspace import Workspace
from lango.core.messages.messages import Media
from lango.errors import ObjectStoreError
from lango.providers.scripted import ScriptedProvider
from lango.store.files.cleanup import ObjectCleanup
from lango.store.files.contents import CHUNK
from lango.store.files.objects import ObjectStore
from lango.store.schema.tables import artifact_chunks
from tests.server.served_apps import PATIENCE, ServedApp, served_app

PNG = b"\x89PNG\r\n\x1a\n" + os.urandom(3 * CHUNK)
PNG_TYPE = "image/png"


@pytest_asyncio.fixture
async def served(workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """A server whose files are in a folder."""
    async with served_app(workspace, tenant, adk_routes="/adk") as opened:
        opened.process.store.database.objects = ObjectStore(f"file://{workspace.folder}/objects")
        yield opened


async def chunk_count(served: ServedApp) -> int:
    statement = sa.select(sa.func.count()).select_from(artifact_chunks)
    database = served.process.store.database
    return await database.read(lambda connection: connection.scalar(statement)) or 0


def take_away(folder: Path) -> None:
    """Make every operation of the object store fail."""
    folder.rename(folder.with_name("away"))
    folder.write_text("no folder")


def bring_back(folder: Path) -> None:
    """End the outage."""
    folder.unlink()
    folder.with_name("away").rename(folder)


async def test_a_file_goes_up_and_comes_down(served: ServedApp) -> None:
    session, before = await served.session(), await chunk_count(served)
    made = await served.file(session, "a.png", PNG, PNG_TYPE)
    assert made["size"] == len(PNG)
    async with served.client() as client:
        taken = await client.get(f"/v1/sessions/{session}/files/a.png")
    assert taken.content == PNG
    assert taken.headers["content-length"] == str(len(PNG))
    assert await chunk_count(served) == before


async def test_a_part_of_a_file_comes_down(served: ServedApp) -> None:
    session = await served.session()
    await served.file(session, "a.png", PNG, PNG_TYPE)
    headers = {"Range": f"bytes={CHUNK - 5}-{2 * CHUNK + 5}"}
    async with served.client() as client:
        part = await client.get(f"/v1/sessions/{session}/files/a.png", headers=headers)
    assert part.status_code == 206
    assert part.content == PNG[CHUNK - 5 : 2 * CHUNK + 6]


async def test_a_model_is_shown_the_file_of_a_turn(served: ServedApp) -> None:
    """The message has a copy of the bytes, which is an object as well."""
    session, before = await served.session(), await chunk_count(served)
    await served.file(session, "a.png", PNG, PNG_TYPE)
    seen = ScriptedProvider(rule=in_rounds)
    async with served.worker(provider=seen):
        for message in ("What is this?", "And now?"):
            turn = await served.turn(session, message, files=["a.png"])
            ended = await served.turns().wait(turn)
            assert ended.error is None
    shown = [media for message in seen.requests[-1].messages for media in message.media]
    assert shown == [Media(PNG_TYPE, PNG, name="a.png")] * 2
    assert await chunk_count(served) == before


async def test_a_turn_waits_for_the_object_store(
    served: ServedApp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.db.retry.RETRIES", 1)  # not for turns
    session, folder = await served.session(), served.process.workspace.folder / "objects"
    await served.file(session, "a.png", PNG, PNG_TYPE)
    turn = await served.turn(session, "What is this?", files=["a.png"])
    take_away(folder)
    seen = ScriptedProvider(rule=in_rounds)
    async with served.worker(provider=seen):
        async with asyncio.timeout(PATIENCE):
            while caplog.text.count("The object store failed") < 4:  # noqa: ASYNC110 - of the worker
                await asyncio.sleep(0.05)
        bring_back(folder)
        ended = await served.turns().wait(turn)
    assert (ended.state, ended.attempts) == ("completed", 1)
    assert Media(PNG_TYPE, PNG, name="a.png") in seen.requests[0].messages[-1].media


async def test_artifacts_of_adk_s_routes_are_objects_too(served: ServedApp) -> None:
    await served.session(alias="chat")
    before = await chunk_count(served)
    path = f"/adk/apps/{served.agent}/users/ann/sessions/chat/artifacts"
    new = {"filename": "a.txt", "artifact": {"text": "words"}}
    async with served.client() as client:
        assert (await client.post(path, json=new)).status_code == 200
        assert (await client.get(f"{path}/a.txt")).json()["text"] == "words"
    assert await chunk_count(served) == before


async def test_a_worker_deletes_the_objects_of_a_deleted_session(served: ServedApp) -> None:
    session, folder = await served.session(), served.process.workspace.folder / "objects"
    await served.file(session, "a.png", PNG, PNG_TYPE)
    async with served.client() as client:
        await client.delete(f"/v1/sessions/{session}")
    async with asyncio.timeout(PATIENCE), served.worker():
        while any(path.is_file() for path in folder.rglob("*")):  # noqa: ASYNC110 - of the worker
            await asyncio.sleep(0.05)


async def test_an_outage_of_the_object_store_repeats_no_other_upkeep(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[ObjectCleanup] = []

    async def fail(self: ObjectCleanup) -> None:
        tries.append(self)
        raise ObjectStoreError

    monkeypatch.setattr(ObjectCleanup, "run", fail)
    monkeypatch.setattr("lango.turns.worker._UPKEEP_EVERY", 3600.0)
    monkeypatch.setattr("lango.turns.worker._RETRY_AFTER_FAULT", 0.0)
    session = await served.session()
    async with served.worker():
        turn = await served.turn(session, "hello")
        assert (await served.turns().wait(turn)).error is None
    assert len(tries) == 1


async def test_an_outage_of_the_object_store_is_a_503_to_try_again(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.db.retry.RETRIES", 1)
    session = await served.session()
    await served.file(session, "a.png", PNG, PNG_TYPE)
    folder = served.process.workspace.folder / "objects"
    take_away(folder)
    path: Any = f"/v1/sessions/{session}/files"
    async with served.client(content_type=PNG_TYPE) as client:
        up = await client.post(path, params={"name": "b.png"}, content=PNG)
        down = await client.get(f"{path}/a.png")
        for answer in (up, down):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
            assert answer.json()["type"] == "urn:lango:error:object-store"
        bring_back(folder)
        assert (await client.get(f"{path}/a.png")).content == PNG
        assert [each["name"] for each in (await client.get(path)).json()["files"]] == ["a.png"]
