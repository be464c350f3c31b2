"""The agents of an application, made when it starts."""

from pathlib import Path

import pytest
from google.adk.agents import LlmAgent

from lango.adk.models.adapter import ModelAdapter
from lango.app import Application
from lango.config.load import load
from lango.testing.wires import Call, ScriptedAnswer, WireServer

SETTINGS = """
apps:
  clerk:
    agent:
      model: openai-chat:some-model
      instruction: You know what time it is.
      tools:
        - builtin:time
        - tests.adk.runner.tools:look
        - {use: tests.adk.runner.tools:ticket, name: open_ticket, require_confirmation: true}
providers:
  openai-chat: {api_key: "${CLERK_KEY}", base_url: "${CLERK_URL}"}
store: {url: "${CLERK_STORE}", tenant: "${CLERK_TENANT}"}
"""
TOOLS = ["current_time", "look", "open_ticket"]


@pytest.mark.scenario("Agent Initialization")
async def test_agent_initialization(
    store_url: str, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has what the file names, and so does what its model is asked."""
    file = tmp_path / "lango.yaml"
    file.write_text(SETTINGS)
    asks = ScriptedAnswer(calls=(Call("look", '{"number": 7}'),))
    async with WireServer("openai_chat", asks, ScriptedAnswer("I saw it.")) as server:
        for name, value in {"KEY": "key-1", "URL": server.url, "STORE": store_url}.items():
            monkeypatch.setenv(f"CLERK_{name}", value)
        monkeypatch.setenv("CLERK_TENANT", tenant)
        async with Application(load(file)) as application:
            clerk = await application.agent()
            root = clerk.root
            assert isinstance(root, LlmAgent)
            assert root.name == "clerk"
            assert isinstance(root.model, ModelAdapter)
            assert root.model.model == "openai-chat:some-model"
            assert [tool.name for tool in await root.canonical_tools()] == TOOLS
            assert await clerk.run_and_collect("look at 7") == "I saw it."
    assert server.refused == []
    first, second = server.requests
    assert first.headers["authorization"] == "Bearer key-1"
    assert first.body["model"] == "some-model"
    assert [tool["function"]["name"] for tool in first.body["tools"]] == TOOLS
    assert "You know what time it is." in first.body["messages"][0]["content"]
    assert '"number":7' in second.body["messages"][-1]["content"]
