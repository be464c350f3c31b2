"""ADK's own client talks to lango; the routes may be at the root."""

from typing import Any

import pytest
from fastapi import Request
from google.adk.cli.api_server import RunAgentRequest
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.genai import types

from faults.turns.workspace import Workspace
from lango.server.auth.callers import Caller, Identity
from lango.server.auth.identity import local_caller
from tests.server.served_apps import ServedApp, live, served_app


class Local(Identity):
    """Takes every caller for the local user."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    async def caller(self, request: Request) -> Caller:
        return local_caller(request, self.tenant)


async def talk(client: AdkWebServerClient, opened: ServedApp) -> None:
    who: dict[str, Any] = {"app_name": opened.agent, "user_id": "ann"}
    session = await client.create_session(**who, state={"colour": "blue"})
    ids: dict[str, Any] = {**who, "session_id": session.id}
    for number in range(3):
        message = types.UserContent(f"Message {number}")
        request = RunAgentRequest(**ids, new_message=message, streaming=True)
        events = [event async for event in client.run_agent(request)]
        assert [event.partial for event in events][-1] is not True
        answer = types.ModelContent(f"You said: Message {number}")
        assert events[-1].content == types.Content(role="model", parts=answer.parts)
    updated = await client.update_session(**ids, state_delta={"colour": "red"})
    assert updated.state == {"colour": "red"}
    loaded = await client.get_session(**ids)
    assert len([event for event in loaded.events if event.content]) == 6
    assert (await client.get_version_data())["language"] == "python"
    await client.delete_session(**ids)


@pytest.mark.parametrize("path", ["/adk", "/"])
async def test_adk_s_own_client(sqlite_workspace: Workspace, tenant: str, path: str) -> None:
    async with served_app(sqlite_workspace, tenant, adk_routes=path) as opened:
        opened.app.state.identity = Local(tenant)
        async with (
            live(opened, opened.worker()) as served,
            AdkWebServerClient(f"{served.url}{path}", timeout=60.0) as client,
        ):
            await talk(client, opened)


async def test_they_are_off_unless_set(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as web:
        for path in ("/adk/list-apps", "/list-apps"):
            assert (await web.get(path)).status_code == 404
