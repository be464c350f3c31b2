"""Which deltas bypass ADK: those that no code of the app could have seen there."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners.built_in_planner import BuiltInPlanner
from google.adk.planners.plan_re_act_planner import PlanReActPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.plugins.logging_plugin import LoggingPlugin
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, Workflow
from google.genai import types

from faults.recovery.kill_shapes import agent
from lango.adk.apps.load import Root
from lango.adk.models.adapter import ModelAdapter
from lango.core.turns.events import MessageCompleted, MessageDelta, TurnEvent
from lango.testing import ScriptedProvider
from lango.testing.kill_trials import Sweep, run_turns
from tests.adk.durable.dying import new_key

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

WORDS = "one two three four five"


@dataclass
class Deliveries:
    """What a turn yielded, and what it published directly."""

    yielded: list[TurnEvent] = field(default_factory=list[TurnEvent])
    direct: list[TurnEvent] = field(default_factory=list[TurnEvent])

    @property
    def text(self) -> str:
        """All deltas, in the order of the list they came by."""
        return _text(self.yielded) + _text(self.direct)


def _text(events: list[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, MessageDelta))


async def heard(make: Callable[[], Root], url: str) -> Deliveries:
    found, key = Deliveries(), new_key()
    sweep = Sweep(make, ("TURN",), url)
    log, publish = found.yielded.append, found.direct.append
    await run_turns(sweep, key, f"worker-{key.tenant}", (), log=log, publish=publish)
    return found


def _answering(name: str = "root", **options: Any) -> LlmAgent:
    return agent(name, WORDS, **options)


async def test_adk_gets_the_first_delta_only(store_url: str) -> None:
    found = await heard(_answering, store_url)
    assert _text(found.yielded) == "root"
    assert _text(found.direct) == f" 0: {WORDS}"
    [whole] = [event for event in found.yielded if isinstance(event, MessageCompleted)]
    messages = {each.message for each in found.direct if isinstance(each, MessageDelta)}
    assert (whole.text, messages) == (f"root 0: {WORDS}", {whole.message})


def _louder(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse:
    del callback_context
    for part in _parts(llm_response):
        part.text = part.text and part.text.upper()
    return llm_response


async def test_an_after_model_callback_changes_every_delta(sqlite_url: str) -> None:
    found = await heard(lambda: _answering(after_model_callback=_louder), sqlite_url)
    assert not found.direct
    assert _text(found.yielded) == f"ROOT 0: {WORDS.upper()}"


class Rewriting(BasePlugin):
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        return _louder(callback_context, llm_response)


class Reading(BasePlugin):
    def __init__(self) -> None:
        super().__init__("reading")
        self.texts: list[str] = []

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> Event | None:
        del invocation_context
        if event.partial and event.content:
            self.texts += [part.text or "" for part in event.content.parts or []]
        return None


class BeforeOnly(BasePlugin):
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        del callback_context, llm_request


def _with(*plugins: BasePlugin) -> App:
    return App(name="app", root_agent=_answering(), plugins=list(plugins))


async def test_a_plugin_changes_every_delta(sqlite_url: str) -> None:
    found = await heard(lambda: _with(Rewriting("rewriting")), sqlite_url)
    assert not found.direct
    assert _text(found.yielded) == f"ROOT 0: {WORDS.upper()}"


async def test_a_plugin_sees_every_partial_event(sqlite_url: str) -> None:
    reading = Reading()
    found = await heard(lambda: _with(reading), sqlite_url)
    assert not found.direct
    assert "".join(reading.texts) == f"root 0: {WORDS}"


async def test_a_plugin_that_sees_no_answers_is_no_obstacle(sqlite_url: str) -> None:
    assert (await heard(lambda: _with(BeforeOnly("before")), sqlite_url)).direct


class Wrapped(BaseAgent):
    """An agent of the user's own around others."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for below in self.sub_agents:
            async for event in below.run_async(ctx):
                yield event


class Specialised(LlmAgent):
    """An agent of the user's own that runs as ADK's does."""


class Router(BaseLlm):
    """A model of the user's own that asks lango's."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        inner = _model()
        async for response in inner.generate_content_async(llm_request, stream):
            yield response


class Overridden(ModelAdapter):
    """lango's model, changed."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        async for response in super().generate_content_async(llm_request, stream):
            yield response


def _model(kind: type[ModelAdapter] = ModelAdapter) -> ModelAdapter:
    return kind(ScriptedProvider(rule=lambda _: WORDS), "demo")


VISIBLE: dict[str, Callable[[], Root]] = {
    "ADK's logging plugin": lambda: _with(LoggingPlugin()),
    "a planner that rewrites answers": lambda: _answering(planner=PlanReActPlanner()),
    "an agent of another class above": lambda: Wrapped(name="root", sub_agents=[_answering("a")]),
    "a subclass of LlmAgent": lambda: Specialised(name="root", model=_model()),
    "a model around lango's": lambda: LlmAgent(name="root", model=Router(model="router")),
    "a subclass of lango's model": lambda: LlmAgent(name="root", model=_model(Overridden)),
}


@pytest.mark.parametrize("why", VISIBLE)
async def test_deltas_pass_through_adk_where_code_could_see_them(why: str, sqlite_url: str) -> None:
    found = await heard(VISIBLE[why], sqlite_url)
    assert not found.direct
    assert WORDS in _text(found.yielded)


HIDDEN: dict[str, Callable[[], Root]] = {
    "a planner of the model itself": lambda: _answering(
        planner=BuiltInPlanner(thinking_config=types.ThinkingConfig())
    ),
    "sequence": lambda: SequentialAgent(name="root", sub_agents=[_answering("a")]),  # pyright: ignore[reportDeprecated]
    "parallel": lambda: ParallelAgent(name="root", sub_agents=[_answering("a")]),  # pyright: ignore[reportDeprecated]
    "workflow": lambda: Workflow(name="root", edges=[(START, _answering("a"))]),
}


@pytest.mark.parametrize("shape", HIDDEN)
async def test_deltas_bypass_adk_in_agents_of_adk_alone(shape: str, sqlite_url: str) -> None:
    found = await heard(HIDDEN[shape], sqlite_url)
    assert WORDS in _text(found.direct)


async def test_each_agent_of_a_sequence_is_judged_by_itself(sqlite_url: str) -> None:
    def make() -> Root:
        loud = _answering("loud", after_model_callback=_louder)
        return SequentialAgent(name="root", sub_agents=[loud, _answering("quiet")])  # pyright: ignore[reportDeprecated]

    found = await heard(make, sqlite_url)
    assert _text(found.yielded) == f"LOUD 0: {WORDS.upper()}quiet"
    assert _text(found.direct) == f" 0: {WORDS}"


async def test_an_agent_in_a_tool_publishes_nothing(sqlite_url: str) -> None:
    def make() -> Root:
        helper = agent("helper", "secret words")
        ask = [("helper", {"request": "TURN inner"})]
        return agent("root", ask, "done with it", tools=[AgentTool(helper)])

    found = await heard(make, sqlite_url)
    assert "secret" not in found.text
    assert _text(found.direct) == " 0 calls 1: done with it"


async def test_a_tool_that_runs_an_agent_gets_every_delta(sqlite_url: str) -> None:
    """ADK's own tool for that turns streaming off; others may not."""
    streamed: list[str] = []

    async def ask(request: str, tool_context: ToolContext) -> str:
        """Ask a helper."""
        plugins = tool_context.get_invocation_context().plugin_manager.plugins
        app = App(name="inner", root_agent=agent("helper", WORDS), plugins=list(plugins))
        sessions = InMemorySessionService()
        inner = Runner(app=app, session_service=sessions)
        session = await sessions.create_session(app_name="inner", user_id="u")
        events = inner.run_async(
            user_id="u",
            session_id=session.id,
            new_message=types.UserContent(request),
            run_config=RunConfig.model_validate({"streaming_mode": "sse"}),
        )
        streamed.append(await _partial_text(events))
        return "answered"

    found = await heard(lambda: _with_tool(ask), sqlite_url)
    assert streamed == [f"helper 0: {WORDS}"]
    assert WORDS not in found.text


async def test_a_tool_that_asks_the_model_gets_every_delta(sqlite_url: str) -> None:
    streamed: list[str] = []

    async def ask(request: str) -> str:
        """Ask the model."""
        asked = LlmRequest(contents=[types.UserContent(request)])
        model = agent("helper", WORDS).canonical_model
        streamed.append(await _partial_text(model.generate_content_async(asked, stream=True)))
        return "answered"

    found = await heard(lambda: _with_tool(ask), sqlite_url)
    assert streamed == [f"helper 0: {WORDS}"]
    assert WORDS not in found.text


def _with_tool(tool: Callable[..., Any]) -> LlmAgent:
    """An agent that asks a tool, whose model answers with WORDS."""
    return agent("root", [("ask", {"request": "TURN inner"})], "done with it", tools=[tool])


async def _partial_text(responses: AsyncIterator[LlmResponse]) -> str:
    partial = [_parts(response) async for response in responses if response.partial]
    return "".join(part.text or "" for parts in partial for part in parts)


def _parts(response: LlmResponse) -> list[types.Part]:
    return (response.content.parts if response.content else None) or []


async def test_without_a_publisher_every_delta_passes_through_adk(sqlite_url: str) -> None:
    found, key = Deliveries(), new_key()
    sweep = Sweep(_answering, ("TURN",), sqlite_url)
    log = found.yielded.append
    await run_turns(sweep, key, f"worker-{key.tenant}", (), log=log, publish=None)
    assert _text(found.yielded) == f"root 0: {WORDS}"
