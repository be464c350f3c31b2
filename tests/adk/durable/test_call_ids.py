"""Call ids that are unique only within one response: every call gets its own result."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.events.event import Event
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types
from pydantic import PrivateAttr

from faults.recovery.kill_shapes import TURN
from lango.adk.apps.load import Root
from lango.adk.durable.calls.long_running import hide_marks
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.ids import MAX_ID_LENGTH
from lango.store.sessions.entries import SessionKey
from lango.testing.kill_checks import Snapshot
from lango.testing.kill_trials import APP, USER, HumanReply, Sweep, TurnInput
from tests.adk.durable.dying import cut_off, new_key, resumed, undisturbed

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

Calls = Sequence[tuple[str, str]]
"""The ids and tools of the calls of one response."""


class NumberingModel(BaseLlm):
    """Gives its responses in turn; the very objects, so that ADK shares them between events."""

    _responses: list[LlmResponse] = PrivateAttr()
    _requests: list[LlmRequest] = PrivateAttr(default_factory=list[LlmRequest])

    def __init__(self, *steps: Calls | str) -> None:
        super().__init__(model="plain")
        known: dict[str, LlmResponse] = {}
        self._responses = [known.setdefault(str(step), _response(step)) for step in steps]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        self._requests.append(llm_request)
        answers = sum(_is_answer(content) for content in llm_request.contents)
        yield self._responses[min(answers, len(self._responses) - 1)]


def _is_answer(content: types.Content) -> bool:
    return any(part.function_response for part in content.parts or ())


def _response(step: Calls | str) -> LlmResponse:
    parts = [types.Part(text=step)] if isinstance(step, str) else [_call(*one) for one in step]
    return LlmResponse(content=types.Content(role="model", parts=parts))


def _call(call_id: str, tool: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=tool, args={}))


def pay() -> dict[str, str]:
    """Pay."""
    return {"paid": "yes"}


def look() -> dict[str, str]:
    """Look."""
    return {"seen": "yes"}


def ask() -> None:
    """Ask."""


def agent(name: str, *steps: Calls | str, tools: Sequence[object] = (pay, look)) -> LlmAgent:
    return LlmAgent(name=name, model=NumberingModel(*steps), tools=list(tools))  # pyright: ignore[reportArgumentType]


async def events_of(url: str, key: SessionKey, *, session: str = "") -> list[types.Part]:
    async with SessionServiceAdapter(url, tenant=key.tenant, token_budget=None) as service:
        found = await service.get_session(
            app_name=APP, user_id=USER, session_id=session or key.session_id
        )
    assert found is not None
    return [
        part
        for event in found.events
        for part in (event.content.parts if event.content else None) or ()
        if part.function_call or part.function_response
    ]


def sweep(root: Root, url: str, *turns: TurnInput) -> Sweep:
    return Sweep(lambda: root, turns or (f"{TURN} one",), url)


async def ran(root: Root, url: str, *turns: TurnInput) -> tuple[Snapshot, list[types.Part]]:
    key = new_key()
    shot = await resumed(sweep(root, url, *turns), key)
    return shot, await events_of(url, key)


def results(parts: Sequence[types.Part]) -> list[object]:
    return [part.function_response.response for part in parts if part.function_response]


def calls(parts: Sequence[types.Part]) -> list[str]:
    return [part.function_call.id or "" for part in parts if part.function_call]


def is_valid(parts: Sequence[types.Part]) -> bool:
    """Whether each call has an id of its own, and one response."""
    answered = Counter(part.function_response.id for part in parts if part.function_response)
    return Counter(calls(parts)) == answered and set(answered.values()) == {1}


@pytest.mark.parametrize(
    "container",
    [SequentialAgent, ParallelAgent],  # pyright: ignore[reportDeprecated]
)
async def test_each_tool_runs_for_its_own_call(container: type, store_url: str) -> None:
    agents = [agent("a", [("call_0", "look")], "A"), agent("b", [("call_0", "pay")], "B")]
    shot, parts = await ran(container(name="root", sub_agents=agents), store_url)
    assert shot.turns == ("completed",)
    assert sorted(map(str, results(parts))) == ["{'paid': 'yes'}", "{'seen': 'yes'}"]
    assert is_valid(parts)


async def test_a_unique_id_stays_as_the_model_gave_it(store_url: str) -> None:
    _, parts = await ran(agent("root", [("x1", "look")], [("x2", "pay")], "done"), store_url)
    assert calls(parts) == ["x1", "x2"]


async def test_the_same_objects_in_every_response(store_url: str) -> None:
    numbered, without_id = [("call_0", "pay")], [("", "look")]
    steps = (numbered, without_id, numbered, without_id, "done")
    _, parts = await ran(agent("root", *steps), store_url)
    assert results(parts) == [{"paid": "yes"}, {"seen": "yes"}] * 2
    assert is_valid(parts)


async def test_one_id_twice_in_one_response(store_url: str) -> None:
    tools = [pay, LongRunningFunctionTool(ask)]
    root = agent("root", [("call_0", "pay"), ("call_0", "ask")], "done", tools=tools)
    shot, parts = await ran(root, store_url)
    assert results(parts) == [{"paid": "yes"}]
    assert len(set(calls(parts))) == 2
    assert shot.turns == ("input_required",)


@pytest.mark.parametrize("given", ["x" * (MAX_ID_LENGTH + 1), "x" * MAX_ID_LENGTH, "a\x00b"])
async def test_an_id_that_nothing_could_be_named_after(given: str, store_url: str) -> None:
    tools = [FunctionTool(pay, require_confirmation=True)]
    root = agent("root", [(given, "pay")], "done", tools=tools)
    shot, parts = await ran(root, store_url, f"{TURN} one", HumanReply(True))
    assert shot.turns == ("answered", "completed")
    assert {"paid": "yes"} in results(parts)


async def test_later_turns_of_the_session(store_url: str) -> None:
    turns = (f"{TURN} one", f"{TURN} two")
    root = LlmAgent(
        name="root", model=NumberingModel([("call_0", "pay")], "done", [("call_0", "look")], "done")
    )
    root.tools = [pay, look]
    _, parts = await ran(root, store_url, *turns)
    assert is_valid(parts)


async def test_agents_as_tools_side_by_side(store_url: str) -> None:
    helpers = [
        agent(name, [("call_0", tool)], name) for name, tool in (("h", "pay"), ("i", "look"))
    ]
    asks = agent("a", [("call_0", "h")], "A", tools=[AgentTool(helpers[0])])
    asks_too = agent("b", [("call_0", "i")], "B", tools=[AgentTool(helpers[1])])
    root = ParallelAgent(name="root", sub_agents=[asks, asks_too])  # pyright: ignore[reportDeprecated]
    shot, parts = await ran(root, store_url)
    assert sorted(map(str, results(parts))) == ["{'result': 'h'}", "{'result': 'i'}"]
    assert len(shot.history) == 3
    assert "paid" in str(shot.history)
    assert "seen" in str(shot.history)


async def test_an_agent_as_tool_that_goes_on_has_not_its_caller_s_id(store_url: str) -> None:
    helper = agent("h", [("call_0", "pay")], "helped")
    root = agent("root", [("call_0", "h")], "done", tools=[AgentTool(helper)])
    trial, key = sweep(root, store_url), new_key()
    dead = await cut_off(trial, key, "model.start", 2)
    shot = await resumed(trial, key, dead)
    assert shot.turns == ("completed",)
    assert len({call.rpartition("/")[2] for call in shot.calls}) == 2


async def test_approvals_of_two_agents(store_url: str) -> None:
    paying = FunctionTool(pay, require_confirmation=True)
    agents: list[BaseAgent] = [
        agent("a", [("call_0", "pay")], "A", tools=[paying]),
        agent("b", [("call_0", "pay")], "B", tools=[paying]),
    ]
    root = ParallelAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    shot, parts = await ran(root, store_url, f"{TURN} one", HumanReply(True), HumanReply(True))
    assert shot.turns == ("answered", "answered", "completed")
    assert results(parts).count({"paid": "yes"}) == 2


@pytest.mark.parametrize("point", ["ledger.start.after", "ledger.finish.after", "append.before"])
async def test_a_kill_between_equal_ids(point: str, store_url: str) -> None:
    agents: list[BaseAgent] = [agent(name, [("call_0", "look")], name) for name in ("a", "b")]
    root = SequentialAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    trial, key = sweep(root, store_url), new_key()
    dead = await cut_off(trial, key, point, 2)
    await resumed(trial, key, dead)
    assert is_valid(await events_of(store_url, key))
    assert (await undisturbed(trial)).turns == ("completed",)


def test_a_call_is_not_answered_by_an_earlier_turn() -> None:
    answer = types.FunctionResponse(id="call_0", name="ask", response={})
    earlier = Event(
        invocation_id="i1",
        author="root",
        content=types.Content(parts=[types.Part(function_response=answer)]),
    )
    now = Event(
        invocation_id="i2",
        author="root",
        content=types.Content(parts=[_call("call_0", "ask")]),
        long_running_tool_ids={"call_0"},
    )
    assert hide_marks([earlier, now], "i2", ()) == {"call_0"}
