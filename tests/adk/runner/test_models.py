"""Our model under a real Runner, on our store: what users saw go wrong, and must not."""

import gc
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from pydantic import BaseModel

from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins.caller import CallerPlugin
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import SessionAdapter
from lango.core.context.model_calls import ModelCall
from lango.core.messages.messages import Message, Reasoning, ToolCall
from lango.core.messages.pairing import INTERRUPTED
from lango.core.messages.streams import Done, StreamEvent, ToolCallDone
from lango.errors import ModelUnavailableError
from lango.providers.base import ModelRequest, Provider
from lango.testing import Fault, Reply, ScriptedProvider
from tests.support.conversations import problems

APP, USER, SESSION = "app", "user", "session"
Ran = list[int]


def look(ran: Ran) -> Any:
    async def look(number: int) -> dict[str, Any]:
        """Look at a number."""
        ran.append(number)
        return {"seen": number}

    return look


def call(number: int, call_id: str = "") -> ToolCall:
    return ToolCall(call_id or f"id-{number}", "look", input=json.dumps({"number": number}))


class NoIds:
    """A careless server: it gives its calls no ids at all."""

    name = "careless"

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        if request.messages[-1].is_tool:
            yield Done("stop")
            return
        for number in self.numbers:
            yield ToolCallDone(ToolCall("", "look", input=json.dumps({"number": number})))
        yield Done("tool_calls")


class ModelConversation:
    """A session of one test; every turn has a service and a Runner of its own."""

    def __init__(self, url: str, tenant: str) -> None:
        self.url, self.tenant = url, tenant
        self.ran: Ran = []

    def service(self, token_budget: int | None = 0) -> SessionServiceAdapter:
        return SessionServiceAdapter(self.url, tenant=self.tenant, token_budget=token_budget)

    async def say(
        self,
        text: str,
        model: Provider | BaseLlm,
        *,
        streaming: bool = False,
        stop_after: int = 0,
        token_budget: int | None = 0,
        **options: Any,
    ) -> list[Event]:
        """One turn; the events it gave."""
        llm = model if isinstance(model, BaseLlm) else ModelAdapter(model, "demo")
        plugins = options.pop("plugins", [])
        agent = LlmAgent(name="root", model=llm, tools=[look(self.ran)], **options)
        config = RunConfig.model_validate({"streaming_mode": "sse" if streaming else None})
        seen: list[Event] = []
        async with self.service(token_budget) as service:
            runner = Runner(
                app=App(name=APP, root_agent=agent, plugins=plugins),
                session_service=service,
                auto_create_session=True,
            )
            run = runner.run_async(
                user_id=USER,
                session_id=SESSION,
                new_message=types.Content(role="user", parts=[types.Part(text=text)]),
                run_config=config,
            )
            async with aclosing(run) as events:
                async for event in events:
                    seen.append(event)
                    if len(seen) == stop_after:
                        break
        return seen

    async def session(self) -> SessionAdapter:
        async with self.service(None) as service:
            session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert isinstance(session, SessionAdapter)
        return session


@pytest.fixture
def conversation(store_url: str, tenant: str) -> ModelConversation:
    return ModelConversation(store_url, tenant)


def talk(request: ModelRequest) -> list[Message]:
    """The messages behind ADK's instruction."""
    return [message for message in request.messages if message.role != "system"]


def texts(events: Sequence[Event], *, partial: bool) -> str:
    return "".join(
        part.text
        for event in events
        if bool(event.partial) is partial
        for part in (event.content and event.content.parts) or []
        if part.text and not part.thought
    )


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_a_tool_runs_once_and_text_is_said_once(
    conversation: ModelConversation, streaming: bool
) -> None:
    script = [Reply("let me look", (call(1),), thoughts="hm"), "there it is"]
    events = await conversation.say("go", ScriptedProvider(script), streaming=streaming)
    assert conversation.ran == [1]
    assert texts(events, partial=False) == "let me lookthere it is"
    assert texts(events, partial=True) == ("let me lookthere it is" if streaming else "")
    history = (await conversation.session()).history
    assert [(message.role, message.content) for message in history] == [
        ("user", "go"),
        ("assistant", "let me look"),
        ("tool", '{"seen":1}'),
        ("assistant", "there it is"),
    ]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_parallel_calls_of_one_name_without_ids(
    conversation: ModelConversation, streaming: bool
) -> None:
    careless = NoIds(1, 2, 3)
    await conversation.say("go", careless, streaming=streaming)
    await conversation.say("again", careless, streaming=streaming)
    assert sorted(conversation.ran) == [1, 1, 2, 2, 3, 3]
    ids: set[str] = set()
    for request in careless.requests:
        assert problems(request.messages) == []
        for message in request.messages:
            if message.is_tool:
                [result] = message.tool_calls
                ids.add(result.id)
    assert len(ids) == 6
    last = careless.requests[-1].messages
    inputs = [one.input for m in last if m.is_assistant for one in m.tool_calls]
    seen = [m.content for m in last if m.is_tool]
    assert [json.loads(one)["number"] for one in inputs] == [
        json.loads(one)["seen"] for one in seen
    ]


class Foreign(BaseLlm):
    """Another ADK model, whose calls have no ids: ADK makes up some, and strips them later."""

    model: str = "foreign"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        if any(part.function_response for part in llm_request.contents[-1].parts or []):
            yield LlmResponse(content=types.ModelContent("seen"))
            return
        calls = [types.FunctionCall(name="look", args={"number": number}) for number in (1, 2)]
        yield LlmResponse(content=types.ModelContent([types.Part(function_call=c) for c in calls]))


async def test_a_history_whose_ids_were_stripped_is_paired_by_position(
    conversation: ModelConversation,
) -> None:
    for _ in range(2):
        await conversation.say("go", Foreign())
    provider = ScriptedProvider(["well"])
    await conversation.say("and?", provider)
    [request] = provider.requests
    assert problems(request.messages) == []
    assert INTERRUPTED not in [message.content for message in request.messages]
    pairs = [
        (json.loads(one.input)["number"], json.loads(answer.content)["seen"])
        for index, message in enumerate(request.messages)
        for one, answer in zip(message.tool_calls, request.messages[index + 1 :], strict=False)
        if message.is_assistant
    ]
    assert pairs == [(1, 1), (2, 2)] * 2


async def test_a_turn_that_was_cut_off_does_not_poison_the_session(
    conversation: ModelConversation,
) -> None:
    """The run ends between the call and its result, as a crash does."""
    await conversation.say("go", ScriptedProvider([Reply(calls=(call(1),))]), stop_after=1)
    assert conversation.ran == []
    provider = ScriptedProvider(["well"])
    events = await conversation.say("still there?", provider)
    assert texts(events, partial=False) == "well"
    assert problems(provider.requests[0].messages) == []
    assert provider.requests[0].messages[-1].content == "still there?"


async def test_no_window_tears_a_call_from_its_result(conversation: ModelConversation) -> None:
    for number in range(3):
        script = [Reply(calls=(call(number, f"a{number}"), call(number, f"b{number}"))), "seen"]
        await conversation.say(f"look at {number}", ScriptedProvider(script))
    lengths: set[int] = set()
    for budget in range(20, 220, 20):
        provider = ScriptedProvider(["ok"])
        model = ModelAdapter(provider, "demo", token_budget=budget)
        await conversation.say("next", model, token_budget=budget + 60)
        [request] = provider.requests
        assert problems(request.messages) == []
        assert request.messages[-1] == Message("user", "next")
        lengths.add(len(request.messages))
    assert len(lengths) > 3, "the cut never moved"


REASONING = Reasoning("let me see", "scripted", "demo", '{"at":0,"item":{"signature":"sëaled=="}}')


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
async def test_thoughts_are_kept_for_the_model_that_had_them(
    conversation: ModelConversation, streaming: bool
) -> None:
    script = [
        Reply("looking", (call(1),), "let me see", (REASONING,)),
        Reply("there", reasoning=(Reasoning(opaque="x", provider="other", model="m"),)),
        Reply(thoughts="only thoughts", reasoning=(REASONING,)),
    ]
    provider = ScriptedProvider(script)
    await conversation.say("go", provider, streaming=streaming)
    assert talk(provider.requests[1])[1].reasoning == (REASONING,)
    await conversation.say("again", provider, streaming=streaming)
    await conversation.say("and again", provider, streaming=streaming)
    kept = [message.reasoning for message in provider.requests[-1].messages if message.reasoning]
    assert kept == [(REASONING,), (Reasoning("", "other", "m", "x"),), (REASONING,)]
    shown = [
        part
        for event in (await conversation.session()).events
        for part in _parts(event)
        if part.thought
    ]
    assert [part.text for part in shown] == ["let me see", "", "let me see"]


def _parts(event: Event) -> list[types.Part]:
    return (event.content and event.content.parts) or []


@pytest.mark.parametrize("fault", [Fault(2, ModelUnavailableError("gone")), Fault(2)])
async def test_half_an_answer_is_no_answer(conversation: ModelConversation, fault: Fault) -> None:
    script = Reply("half an answer", (call(1),), fault=fault)
    with pytest.raises(Exception, match=r"gone|end mark|broke off") as caught:
        await conversation.say("go", ScriptedProvider([script]), streaming=True)
    assert getattr(caught.value, "partial_text", "") == "half an"
    assert conversation.ran == []
    history = (await conversation.session()).history
    assert [message.content for message in history] == ["go"]
    provider = ScriptedProvider(["here I am"])
    events = await conversation.say("well?", provider)
    assert texts(events, partial=False) == "here I am"
    assert [message.content for message in talk(provider.requests[0])] == ["go", "well?"]


async def test_silence_is_not_repeated_to_the_model(conversation: ModelConversation) -> None:
    """An empty assistant turn was stored once, and the bot repeated its previous answer."""
    await conversation.say("go", ScriptedProvider([Reply("")]))
    await conversation.say("go on", ScriptedProvider([Reply("", finish_reason="length")]))
    provider = ScriptedProvider(["here"])
    await conversation.say("well?", provider)
    sent = [(message.role, message.content) for message in talk(provider.requests[0])]
    assert sent == [("user", "go"), ("user", "go on"), ("user", "well?")]


async def test_the_system_prompt_arrives(conversation: ModelConversation) -> None:
    provider = ScriptedProvider(["ok"])
    await conversation.say("go", provider, instruction="Be brief.")
    first = provider.requests[0].messages[0]
    assert first.role == "system"
    assert "Be brief." in first.content
    assert [tool.name for tool in provider.requests[0].tools] == ["look"]


class Weather(BaseModel):
    city: str
    degrees: int


async def test_a_structured_answer(conversation: ModelConversation) -> None:
    provider = ScriptedProvider(rule=None)
    model = ModelAdapter(provider, "demo")
    agent = LlmAgent(name="root", model=model, output_schema=Weather, output_key="weather")
    async with conversation.service() as service:
        runner = Runner(
            app_name=APP, agent=agent, session_service=service, auto_create_session=True
        )
        message = types.Content(role="user", parts=[types.Part(text="12 degrees")])
        async with aclosing(
            runner.run_async(user_id=USER, session_id=SESSION, new_message=message)
        ) as events:
            async for _ in events:
                pass
    assert (await conversation.session()).state["weather"] == {
        "city": "You said: 12 degrees",
        "degrees": 12,
    }


async def test_records_name_the_session_and_the_turn(conversation: ModelConversation) -> None:
    records: list[ModelCall] = []
    provider = ScriptedProvider([Reply(calls=(call(1),)), "ok"])
    model = ModelAdapter(provider, "demo", on_model_call=records.append)
    events = await conversation.say("go", model, plugins=[CallerPlugin()])
    assert {record.session for record in records} == {(APP, USER, SESSION)}
    assert {record.turn for record in records} == {events[0].invocation_id}
    assert [record.agent for record in records] == ["root", "root"]
    assert [record.sent for record in records] == [1, 3]


class ManyWords(BaseLlm):
    """A model of another vendor, which streams its answer."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        for _ in range(500):
            yield LlmResponse(content=types.ModelContent(" word"), partial=True)
        yield LlmResponse(content=types.ModelContent(" word" * 500))


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_stream_keeps_none_of_its_parts(is_ours: bool) -> None:
    """ADK keeps every partial response of a model call until it ends: 2 KB for each word."""
    words = ScriptedProvider([" word" * 500])
    model = ModelAdapter(words, "m") if is_ours else ManyWords(model="m")
    root = LlmAgent(name="assistant", model=model)
    runner = AgentRunner(root, InMemorySessionService(), name=APP).adk
    partials, kept = 0, dict[int, int]()
    run = runner.run_async(
        user_id=USER,
        session_id=SESSION,
        new_message=types.Content(role="user", parts=[types.Part(text="hi")]),
        run_config=RunConfig.model_validate({"streaming_mode": "sse"}),
    )
    async with aclosing(run) as events:
        async for event in events:
            partials += bool(event.partial)
            if event.partial and partials in (2, 500):
                kept[partials] = sum(type(each) is LlmResponse for each in gc.get_objects())
    assert kept[500] <= kept[2]


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
async def test_agents_in_a_row_repeat_none_of_adks_words_about_the_others(
    sessions: SessionServiceAdapter,
) -> None:
    agents: list[Any] = [LlmAgent(name=name, model=ModelAdapter("scripted:demo")) for name in "ab"]
    root = SequentialAgent(name="root", sub_agents=agents)  # pyright: ignore[reportDeprecated]
    runner = Runner(app_name=APP, agent=root, session_service=sessions)
    await sessions.create_session(app_name=APP, user_id=USER, session_id=SESSION)
    said = runner.run_async(
        user_id=USER, session_id=SESSION, new_message=types.UserContent("hello")
    )
    seen = [event async for event in said]
    assert texts(seen, partial=False) == "You said: hello[a] said:\nYou said: hello"
