"""ADK's own servers, as real processes, on our store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from faults.database.own_cluster import free_port
from lango.adk.apps.services import (
    RegisteredArtifactService,
    RegisteredSessionService,
    parse_uri,
    services_yaml,
    write_services_yaml,
)
from lango.adk.artifacts import SqlArtifactService
from lango.adk.memory import SqlMemoryService
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import LangoError

ROOT: Final = Path(__file__).resolve().parents[2]
ADK: Final = Path(sys.executable).with_name("adk")
PATIENCE: Final = 60.0  # seconds: the server imports the agent when it is first asked for
SESSION: Final = "/apps/echo/users/ann/sessions/first"
AGENT: Final = """
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Echo(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = llm_request.contents[-1].parts[0].text
        part = types.Part(text=f"you said: {said}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def save_note(callback_context):
    callback_context.state["user:greeted"] = True
    await callback_context.save_artifact("note.txt", types.Part(text="a note"))


root_agent = LlmAgent(name="echo", model=Echo(model="echo"), before_agent_callback=save_note)
"""


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """A folder as `adk web` takes it, with one agent and our services."""
    folder = tmp_path / "agents"
    (folder / "echo").mkdir(parents=True)
    (folder / "echo" / "__init__.py").write_text("from . import agent\n")
    (folder / "echo" / "agent.py").write_text(AGENT)
    write_services_yaml(folder)
    return folder


@asynccontextmanager
async def server(command: str, agents: Path, uri: str) -> AsyncGenerator[httpx.AsyncClient]:
    """`adk web` or `adk api_server` with all services on the store."""
    port = free_port()
    services = [f"--{kind}_service_uri={uri}" for kind in ("session", "artifact", "memory")]
    options = [*services, f"--port={port}"]
    log = agents.parent / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it takes no time
            [ADK, command, *options, agents],
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE
        ) as client:
            await _until_it_answers(client, process, log)
            yield client
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail("the server did not end when told to")


async def _until_it_answers(
    client: httpx.AsyncClient, process: subprocess.Popen[bytes], log: Path
) -> None:
    for _ in range(1200):  # a busy machine takes its time
        if process.poll() is not None:
            break
        try:
            await client.get("/list-apps")
        except httpx.TransportError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail(f"the server does not answer, see {log}")


async def one_turn(client: httpx.AsyncClient) -> None:
    """Create a session, say something, and read the artifact that came of it."""
    (await client.post(SESSION, json={"step": 1})).raise_for_status()
    message = {"role": "user", "parts": [{"text": "hello"}]}
    turn: dict[str, Any] = {"appName": "echo", "userId": "ann", "sessionId": "first"}
    answer = (await client.post("/run", json=turn | {"newMessage": message})).raise_for_status()
    assert answer.json()[-1]["content"]["parts"][0]["text"] == "you said: hello"
    found = (await client.get(SESSION)).raise_for_status().json()
    assert found["state"] == {"step": 1, "user:greeted": True}
    assert found["events"][-1]["id"] == answer.json()[-1]["id"]
    note = (await client.get(f"{SESSION}/artifacts/note.txt")).raise_for_status().json()
    assert note["text"] == "a note"
    adding = await client.patch("/apps/echo/users/ann/memory", json={"sessionId": "first"})
    adding.raise_for_status()


async def seen_from_here(url: str, tenant: str) -> None:
    """This process, which is another one, finds the rows in the store."""
    async with SessionServiceAdapter(url, tenant=tenant) as service:
        session = await service.get_session(app_name="echo", user_id="ann", session_id="first")
        assert session is not None
        texts = [
            part.text
            for event in session.events
            for part in (event.content and event.content.parts) or ()
        ]
        assert texts == ["hello", "you said: hello"]
        assert session.state == {"step": 1, "user:greeted": True}
        artifacts = SqlArtifactService(service.store, tenant=tenant)
        note = await artifacts.load_artifact(
            app_name="echo", user_id="ann", session_id="first", filename="note.txt"
        )
        assert note is not None
        assert note.text == "a note"
        memory = SqlMemoryService(service.store, tenant=tenant)
        found = await memory.search_memory(app_name="echo", user_id="ann", query="hello")
        assert [entry.author for entry in found.memories] == ["echo", "user"]


async def test_adk_api_server_runs_on_the_store(store_url: str, tenant: str, agents: Path) -> None:
    async with server("api_server", agents, f"lango+{store_url}?tenant={tenant}") as client:
        await one_turn(client)
    await seen_from_here(store_url, tenant)


async def test_adk_web_runs_on_the_store(sqlite_url: str, tenant: str, agents: Path) -> None:
    async with server("web", agents, f"lango+{sqlite_url}?tenant={tenant}") as client:
        assert (await client.get("/dev-ui/")).status_code == httpx.codes.OK
        await one_turn(client)
    await seen_from_here(sqlite_url, tenant)


@pytest.mark.parametrize(
    ("uri", "parsed"),
    [
        ("lango+sqlite:///lango.db", ("sqlite:///lango.db", None, "", None)),
        ("lango+sqlite:////tmp/a b.db", ("sqlite:////tmp/a b.db", None, "", None)),
        (
            "lango+postgresql://u:p%40ss@h:5/db?ssl=require&schema=mine&tenant=acme"
            "&objects=s3://bucket/prefix",
            ("postgresql://u:p%40ss@h:5/db?ssl=require", "mine", "acme", "s3://bucket/prefix"),
        ),
    ],
)
def test_a_registry_uri_holds_the_url_schema_tenant_and_objects(
    uri: str, parsed: tuple[str, str | None, str, str | None]
) -> None:
    assert parse_uri(uri) == parsed


async def test_registered_services_close_what_they_opened(sqlite_url: str) -> None:
    sessions = RegisteredSessionService(uri=f"lango+{sqlite_url}?tenant=acme", agents_dir="ignored")
    artifacts = RegisteredArtifactService(uri=f"lango+{sqlite_url}", agents_dir="ignored")
    await sessions.create_session(app_name="a", user_id="u", session_id="s")
    assert await artifacts.list_artifact_keys(app_name="a", user_id="u") == []
    assert sessions.tenant == "acme"
    await sessions.close()
    await artifacts.close()


def test_services_are_written_once(tmp_path: Path) -> None:
    path = write_services_yaml(tmp_path)
    assert path.read_text() == services_yaml()
    path.write_text(services_yaml() + "- {scheme: mine, type: memory, class: my.Memory}\n")
    write_services_yaml(tmp_path)
    assert "my.Memory" in path.read_text()


@pytest.mark.parametrize("text", ["services: []\n", "", "[1", "services: 5\n"])
def test_other_services_are_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "services.yaml"
    path.write_text(text)
    with pytest.raises(LangoError, match="--print"):
        write_services_yaml(tmp_path)
    assert path.read_text() == text
