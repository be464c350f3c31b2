"""A server that is killed during an answer: the conversation continues, and no tool runs twice."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from faults.server.processes import Server, project, servers
from faults.turns.workspace import Workspace
from tests.server.openai.clients import Message, assistant, user
from tests.server.served_apps import PATIENCE

STORY = 'call mark {"name": "once"} then ' + " ".join(f"word{number}" for number in range(40))
"""A turn whose tool must not run twice, with an answer long enough to be interrupted."""


@pytest.fixture
def workspace(store_url: str, tmp_path: Path) -> Workspace:
    """A database and a folder for processes."""
    return Workspace(store_url, f"app_{uuid.uuid4().hex}", tmp_path)


def sdk_of(server: Server) -> Any:
    return openai.AsyncOpenAI(
        api_key=server.project.key,
        base_url=f"{server.url}/openai/v1",
        max_retries=0,
        timeout=PATIENCE,
    )


async def ask(client: Any, model: str, messages: list[Message], **more: Any) -> Any:
    """The raw response, whose headers name the session."""
    return await client.chat.completions.with_raw_response.create(
        model=model, messages=messages, **more
    )


async def read_and_kill(server: Server) -> tuple[str, str, str]:
    """Stream an answer and kill the server after its first words: they, the session, the turn."""
    parts = list[str]()
    async with sdk_of(server) as client:
        raw = await ask(client, server.project.workspace.app, [user(STORY)], stream=True)

        async def read() -> None:
            async for chunk in raw.parse():
                parts.append(chunk.choices[0].delta.content or "")
                if "word2" in "".join(parts) and server.up.is_set():
                    await server.kill()

        with pytest.raises((openai.APIError, httpx.TransportError)):
            await read()
    return "".join(parts), raw.headers["Lango-Session"], raw.headers["Lango-Turn"]


async def ended(server: Server, turn: str) -> str:
    """The state in which a turn ends."""
    async with (
        server.client() as client,
        client.stream("GET", f"/v1/turns/{turn}/events") as response,
    ):
        assert response.status_code == 200
        async for _ in response.aiter_bytes():
            pass
    async with server.client() as client:
        return (await client.get(f"/v1/turns/{turn}")).json()["state"]


async def test_a_conversation_continues_after_the_server_was_killed(
    workspace: Workspace, tenant: str
) -> None:
    of = await project(workspace, tenant, delay=0.5)  # 18 s to kill the server in mid-answer
    async with servers(of, 1, with_worker=True) as [server]:
        text, session, turn = await read_and_kill(server)
        server.project = replace(of, delay=0.0)
        await server.start()
        assert await ended(server, turn) == "completed"
        async with sdk_of(server) as client:
            conversation = [user(STORY), assistant(text), user("go on")]
            raw = await ask(client, workspace.app, conversation)
    assert raw.parse().choices[0].message.content == "You said: go on"
    assert raw.headers["Lango-Session"] == session
    assert workspace.effects.words() == ["mark once"]
