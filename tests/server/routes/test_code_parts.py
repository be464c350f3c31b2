"""Code that a model runs, and its output: in the events of its turn and in the history."""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult

from lango.adk.models.adapter import ModelAdapter
from lango.core.turns.events import MessagePart
from lango.testing import Reply, ScriptedProvider
from tests.server.adk.twins import worker_of
from tests.server.served_apps import ServedApp

CODE = "print(6 * 7)"


class Runs(BaseCodeExecutor):
    """Runs nothing, and knows the output."""

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        del invocation_context
        assert code_execution_input.code.strip() == CODE
        return CodeExecutionResult(stdout="42\n")


def coder() -> LlmAgent:
    replies = (Reply(f"I compute.\n```python\n{CODE}\n```"), Reply("It is 42."))
    model = ModelAdapter(ScriptedProvider(replies), "demo")
    return LlmAgent(name="coder", model=model, code_executor=Runs())


def without_ids(part: dict[str, Any]) -> dict[str, Any]:
    return {
        name: part[name]
        for name in ("part", "kind", "text", "language", "outcome")
        if part.get(name) is not None
    }


EXPECTED = [
    {"part": 1, "kind": "code", "text": CODE, "language": "python"},
    {"part": 0, "kind": "code_result", "text": "Code execution result:\n42\n\n", "outcome": "ok"},
]


async def test_code_and_its_output_are_events_and_parts_of_messages(served: ServedApp) -> None:
    session = await served.session()
    async with worker_of(served, coder), served.client() as client:
        turn = await served.turn(session, "Compute.")
        events = [event async for event in served.turns().events(turn)]
        page = (await client.get(f"/v1/sessions/{session}/messages")).json()
    parts = [event.data for event in events if event.type == MessagePart.type]
    assert [without_ids(part) for part in parts] == EXPECTED
    told = {part["event"] if "event" in part else part["message"] for part in parts}
    with_parts = [message for message in page["messages"] if message["parts"]]
    assert {message["id"] for message in with_parts} == told
    assert [without_ids(part) for message in with_parts for part in message["parts"]] == EXPECTED
