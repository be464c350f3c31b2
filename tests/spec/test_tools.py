"""The application's own tools under ADK."""

import json

import pytest

from lango import CallInfo, Tool, ToolAdapter, tool
from lango.core.messages.messages import Message
from lango.core.values import JsonObject
from tests.adk.runner.scripted import ScriptedLlm
from tests.spec.talk import ROOT, SESSION, LlmAgent, create, reload, service_on, turn

ASK = 'do lookup {"city": "Oslo", "days": 2} and add {"numbers": ["1", 2]}'
LOOKUP: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


@pytest.mark.scenario("Execute Legacy Tool")
async def test_execute_legacy_tool(store_url: str, tenant: str) -> None:
    """A tool that an application has already, and a function made into one."""
    called: list[tuple[str, object]] = []

    def lookup(arguments: JsonObject, info: CallInfo) -> JsonObject:
        called.append(("lookup", arguments))
        return {"city": arguments["city"], "session": info.session_id}

    @tool
    async def add(numbers: list[int]) -> int:
        """Add numbers."""
        called.append(("add", numbers))
        return sum(numbers)

    tools = [Tool("lookup", "Looks it up.", LOOKUP, lookup), add]
    agent = LlmAgent(name=ROOT, model=ScriptedLlm(), tools=[ToolAdapter(one) for one in tools])
    async with service_on(store_url, tenant) as service:
        await create(service)
        requests = await turn(service, ASK, root=agent)
    assert sorted(called, key=str) == [
        ("add", [1, 2]),
        ("lookup", {"city": "Oslo", "days": 2}),
    ]
    # The model receives the tools' results, and a loaded session has them, too.
    answers = [part.function_response for part in requests[-1][-1].parts or []]
    assert [answer.response for answer in answers if answer] == [
        {"city": "Oslo", "session": SESSION},
        {"result": 3},
    ]
    history: list[Message] = (await reload(store_url, tenant)).history
    outputs = [json.loads(call.output) for call in history[2].tool_calls]
    assert outputs == [{"city": "Oslo", "session": SESSION}, {"result": 3}]
