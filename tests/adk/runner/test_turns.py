"""Turns by our runner, told as events: texts once, tools, failures, aborts, approvals."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.callback_context import CallbackContext
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from lango.adk.plugins.transfer import TransferGuardPlugin
from lango.adk.runner import TurnOptions, as_app
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import SessionAdapter
from lango.agent.run import run_and_collect
from lango.core.messages.messages import Message
from lango.core.turns.events import (
    Cancelled,
    Completed,
    Failed,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from lango.errors import (
    InvalidIdError,
    ModelStoppedError,
    ModelUnavailableError,
    TurnLimitError,
)
from lango.testing import Fault, Reply
from tests.adk.runner.turns import (
    APP,
    SESSION,
    USER,
    Script,
    agent,
    anything,
    call,
    kinds,
    once,
    runner_of,
    said,
    sequence,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


async def history(service: SessionServiceAdapter) -> list[Message]:
    session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert isinstance(session, SessionAdapter)
    return session.history


def texts(history: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in history]


# --- texts and tools -------------------------------------------------------------------------


async def test_a_turn_streams_its_events() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    replies = [call("add", "Let me see.", a=2, b=3), Reply("It is 5.", thoughts="So five.")]
    events = await once(runner_of(agent("root", *replies, tools=[add])))
    assert kinds(events) == [
        "started",
        *["message.delta"] * 3,
        "message.completed",
        "tool.started",
        "tool.finished",
        *["thought.delta"] * 2,
        *["message.delta"] * 3,
        "message.completed",
        "completed",
    ]
    first, second = (event for event in events if isinstance(event, MessageCompleted))
    assert (first.author, first.text) == ("root", "Let me see.")
    for message in (first, second):
        deltas = [
            e.text for e in events if isinstance(e, MessageDelta) and e.message == message.message
        ]
        assert "".join(deltas) == message.text
    started, finished = events[5], events[6]
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert (started.name, started.arguments) == ("add", {"a": 2, "b": 3})
    assert (finished.call, finished.name) == (started.call, "add")
    assert (finished.result, finished.error) == ({"result": 5}, None)
    assert isinstance(events[-1], Completed)
    assert events[-1].usage.input > 0 < events[-1].usage.output


async def test_without_streaming_the_same_comes_whole() -> None:
    root = agent("root", Reply("It is 5.", thoughts="So five."))
    assert (await once(runner_of(root), streaming=False))[1:-1] == [
        ReasoningDelta(anything, "So five.", author="root"),
        MessageCompleted(anything, "root", "It is 5."),
    ]


async def test_a_failing_tool_finishes_with_its_error() -> None:
    def look() -> dict[str, str]:
        """Look."""
        return {"error": "It is dark."}

    events = await once(runner_of(agent("root", call("look"), "Dark.", tools=[look])))
    assert [e.error for e in events if isinstance(e, ToolFinished)] == ["It is dark."]


async def test_a_shortened_result_says_so() -> None:
    def look() -> dict[str, Any]:
        """Look."""
        return {"truncated": True, "head": "…"}

    events = await once(runner_of(agent("root", call("look"), "Long.", tools=[look])))
    assert [e.truncated for e in events if isinstance(e, ToolFinished)] == [True]


class Sends(BaseLlm):
    """A model that yields just these responses."""

    model: str = "sends"
    responses: list[LlmResponse]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        for response in self.responses:
            yield response.model_copy(deep=True)


def response(text: str, **fields: Any) -> LlmResponse:
    return LlmResponse(content=types.ModelContent(text) if text else None, **fields)


def sending(*responses: LlmResponse) -> LlmAgent:
    return LlmAgent(name="root", model=Sends(responses=list(responses)))


PIECES = {
    "pieces": [response("Hello "), response("world")],
    "pieces and the whole": [response("Hello "), response("world"), response("Hello world")],
    "partial and the whole": [
        response("Hello ", partial=True),
        response("world", partial=True),
        response("Hello world"),
    ],
    "partial and an empty end": [
        response("Hello world", partial=True),
        response("Hello world"),
        response("", finish_reason=types.FinishReason.STOP),
    ],
    "one": [response("Hello world")],
}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("case", PIECES)
async def test_a_text_is_collected_once_however_it_comes(case: str, streaming: bool) -> None:
    runner, how = runner_of(sending(*PIECES[case])), TurnOptions(streaming=streaming)
    assert await run_and_collect(runner, USER, SESSION, "hi", how) == "Hello world"


async def test_a_message_that_is_taken_back_is_reset() -> None:
    """A callback may put a tool call in the place of a text whose deltas were told."""

    def look() -> str:
        """Look."""
        return "seen"

    def look_instead(
        callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        del callback_context
        parts = llm_response.content.parts if llm_response.content else None
        if llm_response.partial or not parts or parts[0].text != "Secret.":
            return None
        part = types.Part.from_function_call(name="look", args={})
        return LlmResponse(content=types.ModelContent(part))

    root = agent("root", "Secret.", "Fine.", tools=[look], after_model_callback=look_instead)
    events = await once(runner_of(root))
    assert kinds(events)[:4] == ["started", "message.delta", "message.reset", "tool.started"]
    assert isinstance(events[2], MessageReset)
    assert said(events) == [("root", "Fine.")]


async def test_texts_of_several_responses_stand_apart() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    root = agent("root", call("look", "Let me look."), "Seen.", tools=[look])
    assert await run_and_collect(runner_of(root), USER, SESSION, "hi") == "Let me look.\n\nSeen."


async def test_parallel_agents_are_not_mixed_up() -> None:
    agents: list[BaseAgent] = [
        agent("left", "one two", "one two"),
        agent("right", "three four", "three four"),
    ]
    root = ParallelAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    runner = runner_of(root)
    assert sorted(said(await once(runner))) == [("left", "one two"), ("right", "three four")]
    collected = await run_and_collect(runner, USER, SESSION, "hi")
    assert sorted(collected.split("\n\n")) == ["one two", "three four"]


async def test_a_loop_says_each_round() -> None:
    root = LoopAgent(  # pyright: ignore[reportDeprecated]
        name="root", sub_agents=[agent("writer", "draft one", "draft two")], max_iterations=2
    )
    assert await run_and_collect(runner_of(root), USER, SESSION, "hi") == "draft one\n\ndraft two"


# --- failures --------------------------------------------------------------------------------


async def test_a_model_that_fails_ends_the_turn_and_the_next_one_works(
    sessions: SessionServiceAdapter,
) -> None:
    fault = Fault(2, ModelUnavailableError("It is gone."))
    script = Script(Reply("one two three four", fault=fault), "Here again.")
    runner = runner_of(script.agent("root"), sessions=sessions)
    events = await once(runner)
    end = events[-1]
    assert isinstance(end, Failed)
    assert end.error is fault.error
    assert end.text == "one two"
    assert texts(await history(sessions)) == [("user", "hi"), ("assistant", "one two")]
    assert said(await once(runner, "again")) == [("root", "Here again.")]
    assert [m.content for m in script.requests[-1].messages][1:] == ["hi", "one two", "again"]


async def test_the_kept_text_is_marked_as_interrupted(sessions: SessionServiceAdapter) -> None:
    fault = Fault(1, ModelUnavailableError("It is gone."))
    await once(runner_of(agent("root", Reply("one two", fault=fault)), sessions=sessions))
    session = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert session
    assert [(e.interrupted, e.partial) for e in session.events if e.content] == [
        (None, None),
        (True, None),
    ]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("reason", ["content_filter", "length"])
async def test_a_model_that_stops_without_a_word(reason: Any, streaming: bool) -> None:
    events = await once(runner_of(agent("root", Reply(finish_reason=reason))), streaming=streaming)
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, ModelStoppedError)


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_a_model_with_nothing_to_add_has_completed_the_turn(streaming: bool) -> None:
    events = await once(runner_of(agent("root", Reply())), streaming=streaming)
    assert kinds(events) == ["started", "completed"]


async def test_an_error_of_other_code_is_the_one_that_was_raised() -> None:
    error = LookupError("somewhere inside")

    def fail(callback_context: CallbackContext) -> None:
        del callback_context
        raise error

    events = await once(runner_of(agent("root", "never", before_agent_callback=fail)))
    assert isinstance(events[-1], Failed)
    assert events[-1].error is error
    assert str(error) not in str(events[-1].data())


async def test_an_error_of_ours_comes_out_of_a_plugin_as_it_is() -> None:
    class Strict(BasePlugin):
        async def before_run_callback(self, *, invocation_context: Any) -> None:
            del invocation_context
            raise TurnLimitError(limit="tokens")

    events = await once(runner_of(agent("root", "never"), Strict("strict")))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, TurnLimitError)


def test_an_app_name_that_adk_refuses() -> None:
    with pytest.raises(InvalidIdError, match="must start with a letter"):
        as_app(agent("root"), name="9 lives")


def test_an_agents_name_is_its_apps_if_it_may_be() -> None:
    assert as_app(agent("_root")).name == "root"


def test_an_app_keeps_its_own_plugins_and_takes_no_second_one_of_a_name() -> None:
    own, other = TransferGuardPlugin(), BasePlugin("other")
    app = App(name="mine", root_agent=agent("root"), plugins=[own])
    assert as_app(app, [TransferGuardPlugin(), other]).plugins == [own, other]
    assert app.plugins == [own]


# --- aborts ----------------------------------------------------------------------------------


async def aborted_after(
    deltas: int, root: BaseAgent, sessions: SessionServiceAdapter
) -> list[TurnEvent]:
    abort = asyncio.Event()
    events: list[TurnEvent] = []
    turn = runner_of(root, sessions=sessions)
    async for event in turn.run(USER, SESSION, "hi", TurnOptions(abort=abort)):
        events.append(event)
        if kinds(events).count("message.delta") == deltas:
            abort.set()
    return events


@pytest.mark.parametrize("shape", ["agent", "sequence"])
async def test_an_aborted_answer_is_kept_as_far_as_it_came(
    shape: str, sessions: SessionServiceAdapter
) -> None:
    script = Script("one two three four five six", "Next.")
    root = script.agent("root") if shape == "agent" else sequence(script.agent("first"))
    events = await aborted_after(2, root, sessions)
    end = events[-1]
    assert isinstance(end, Cancelled)
    events_read = "".join(event.text for event in events if isinstance(event, MessageDelta))
    assert end.text == events_read
    assert events_read.startswith("one two")
    assert "six" not in events_read
    assert texts(await history(sessions)) == [("user", "hi"), ("assistant", events_read)]
    assert said(await once(runner_of(root, sessions=sessions), "again"))[0][1] == "Next."


async def test_an_abort_ends_a_tool(sessions: SessionServiceAdapter) -> None:
    abort, at_work, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def dig() -> None:
        """Dig for ever."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def stop() -> None:
        await at_work.wait()
        abort.set()

    script = Script(call("dig"), "Next.")
    runner = runner_of(script.agent("root", tools=[dig]), sessions=sessions)
    stopping = asyncio.create_task(stop())
    events = await once(runner, abort=abort)
    await stopping
    assert ended.is_set()
    assert kinds(events) == ["started", "tool.started", "tool.finished", "cancelled"]
    assert said(await once(runner, "again")) == [("root", "Next.")]


async def test_a_turn_that_is_not_read_to_its_end_leaves_nothing_running() -> None:
    ended = asyncio.Event()

    async def dig() -> None:
        """Dig for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    turn = runner_of(agent("root", call("dig"), tools=[dig])).run(USER, SESSION, "hi")
    async for event in turn:
        if isinstance(event, ToolStarted):
            break
    await asyncio.sleep(0)  # let the tool begin
    await turn.aclose()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
