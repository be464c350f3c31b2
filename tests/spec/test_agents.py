"""A model that names an agent which is not there, and text that is collected once.

The guard that corrects such names inside the run is off: this is the net behind it.
"""

from collections.abc import AsyncGenerator, AsyncIterator

import pytest
import pytest_asyncio
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lango.adk.runner import AgentRunner, TurnOptions
from lango.adk.sessions.service import SessionServiceAdapter
from lango.agent.run import run_and_collect, run_and_collect_once
from lango.errors import AgentNotFoundError, ModelUnavailableError
from lango.testing import Fault, Reply
from tests.adk.runner.turns import SESSION, USER, Script, agent, call, runner_of, transfer

CORRECTION = (
    '[System: Agent "ghost" does not exist. Valid agents: helper, other. '
    "Please retry using one of the valid agent names listed above.]"
)


@pytest_asyncio.fixture
async def sessions(store_url: str, tenant: str) -> AsyncIterator[SessionServiceAdapter]:
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        yield service


def with_sub_agents(script: Script, sessions: SessionServiceAdapter) -> AgentRunner:
    subs = [agent("helper", "I am the helper."), agent("other")]
    return runner_of(script.agent("root", sub_agents=subs), sessions=sessions)


async def user_messages(runner: AgentRunner) -> list[str]:
    session = await runner.session_service.get_session(
        app_name=runner.app.name, user_id=USER, session_id=SESSION
    )
    assert session
    contents = [event.content for event in session.events if event.author == "user"]
    return [part.text or "" for content in contents if content for part in content.parts or []]


# --- Agent hallucination retry in RunAndCollect ----------------------------------------------


@pytest.mark.scenario("Hallucinated agent name triggers retry")
async def test_hallucinated_agent_name_triggers_retry(sessions: SessionServiceAdapter) -> None:
    script = Script(transfer("ghost"), "Then I do it myself.", "I was asked too often.")
    runner = with_sub_agents(script, sessions)
    with pytest.raises(AgentNotFoundError, match=r"^failed to find agent: ghost$"):
        await run_and_collect_once(
            with_sub_agents(Script(transfer("ghost")), sessions), "x", "y", "hi"
        )
    await run_and_collect(runner, USER, SESSION, "hi")
    assert await user_messages(runner) == ["hi", CORRECTION]
    assert len(script.requests) == 2, "one run, and one more"
    assert script.requests[-1].messages[-1].content == CORRECTION


@pytest.mark.scenario("Retry succeeds")
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_retry_succeeds(sessions: SessionServiceAdapter, streaming: bool) -> None:
    script = Script(transfer("ghost", "One moment."), transfer("helper"))
    runner = with_sub_agents(script, sessions)
    answer = await run_and_collect(runner, USER, SESSION, "hi", TurnOptions(streaming=streaming))
    assert answer == "I am the helper."


@pytest.mark.scenario("Retry also fails")
async def test_retry_also_fails(sessions: SessionServiceAdapter) -> None:
    script = Script(transfer("ghost"), transfer("spook"), "Never asked for.")
    with pytest.raises(AgentNotFoundError, match=r"^failed to find agent: spook$") as caught:
        await run_and_collect(with_sub_agents(script, sessions), USER, SESSION, "hi")
    original = caught.value.__cause__
    assert isinstance(original, AgentNotFoundError)
    assert str(original) == "failed to find agent: ghost"
    assert len(script.requests) == 2


@pytest.mark.scenario("Non-hallucination error is not retried")
async def test_non_hallucination_error_is_not_retried(sessions: SessionServiceAdapter) -> None:
    error = ModelUnavailableError("The model is away.")
    script = Script(Reply("one two three", fault=Fault(2, error)), "Never asked for.")
    runner = with_sub_agents(script, sessions)
    with pytest.raises(ModelUnavailableError) as caught:
        await run_and_collect(runner, USER, SESSION, "hi")
    assert caught.value is error
    assert error.partial_text == "one two"
    assert len(script.requests) == 1
    assert await user_messages(runner) == ["hi"]


@pytest.mark.scenario("No sub-agents means no retry")
async def test_no_sub_agents_means_no_retry(sessions: SessionServiceAdapter) -> None:
    def pass_on(tool_context: ToolContext) -> str:
        """Pass the turn to an agent that is not there."""
        tool_context.actions.transfer_to_agent = "ghost"
        return "passed on"

    script = Script(call("pass_on"), "Never asked for.")
    runner = runner_of(script.agent("root", tools=[pass_on]), sessions=sessions)
    with pytest.raises(AgentNotFoundError, match=r"^failed to find agent: ghost$"):
        await run_and_collect(runner, USER, SESSION, "hi")
    assert len(script.requests) == 1
    assert await user_messages(runner) == ["hi"]


# --- Agent text collection avoids duplication ------------------------------------------------


class Says(BaseLlm):
    """Streams its deltas before the final text; told not to stream, it gives the final alone."""

    model: str = "says"
    final: str = "Hello world"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request
        for delta in ("Hello ", "world") if stream else ():
            yield LlmResponse(content=types.ModelContent(delta), partial=True)
        yield LlmResponse(content=types.ModelContent(self.final), partial=False)


async def collected(final: str, sessions: SessionServiceAdapter, *, streaming: bool) -> str:
    runner = runner_of(LlmAgent(name="root", model=Says(final=final)), sessions=sessions)
    how = TurnOptions(streaming=streaming)
    return await run_and_collect_once(runner, USER, SESSION, "hi", how)


@pytest.mark.scenario("Streaming mode collects from partial events only")
@pytest.mark.parametrize("final", ["Hello world", "what the final event alone says"])
async def test_streaming_mode_collects_from_partial_events_only(
    sessions: SessionServiceAdapter, final: str
) -> None:
    assert await collected(final, sessions, streaming=True) == "Hello world"


@pytest.mark.scenario("Non-streaming mode collects from final event")
async def test_non_streaming_mode_collects_from_final_event(
    sessions: SessionServiceAdapter,
) -> None:
    assert await collected("Hello world", sessions, streaming=False) == "Hello world"
