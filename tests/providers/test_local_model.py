"""A real model, a real Runner, our wire and our store; what it says is its own affair."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.run_config import (
    RunConfig,
    StreamingMode,  # pyright: ignore[reportPrivateImportUsage]  # its documented home
)
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.genai import types
from pydantic import BaseModel, Field

from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.providers.policy.retry import close_provider
from lango.providers.registry import Access, resolve
from tests.providers import local_model
from tests.support.environments import NoEnvironmentError
from tests.support.skipping import skipped_without

APP, USER = "local", "user"
SETTINGS = types.GenerateContentConfig(temperature=0.0, max_output_tokens=60)


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """The served model; where it cannot be had, the tests are skipped, but not in CI."""
    with skipped_without(NoEnvironmentError, "local model"), local_model.served() as url:
        yield url


@pytest.fixture
async def model(model_url: str) -> AsyncIterator[ModelAdapter]:
    """The model by its name, as a user would ask for it."""
    provider, name = resolve("llamacpp:local", access={"llamacpp": Access(base_url=model_url)})
    yield ModelAdapter(provider, name)
    await close_provider(provider)


@pytest.fixture
async def service(sqlite_url: str) -> AsyncIterator[SessionServiceAdapter]:
    async with SessionServiceAdapter(sqlite_url) as made:
        yield made


async def turn(
    service: SessionServiceAdapter, agent: LlmAgent, text: str, *, streaming: bool = False
) -> list[Event]:
    """The events of one turn in a new session."""
    session = await service.create_session(app_name=APP, user_id=USER)
    runner = Runner(app_name=APP, agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    mode = StreamingMode.SSE if streaming else StreamingMode.NONE
    events = [
        event
        async for event in runner.run_async(
            user_id=USER,
            session_id=session.id,
            new_message=message,
            run_config=RunConfig(streaming_mode=mode, max_llm_calls=4),
        )
    ]
    stored = await service.get_session(app_name=APP, user_id=USER, session_id=session.id)
    assert stored is not None
    assert [event.id for event in stored.events[1:]] == [e.id for e in events if not e.partial]
    return events


def text_of(event: Event) -> str:
    parts = (event.content.parts if event.content else None) or []
    return "".join(part.text or "" for part in parts if not part.thought)


def check_final(event: Event) -> None:
    """A proper end: finished, counted, and by the model."""
    assert event.is_final_response()
    assert event.error_code is None
    assert event.finish_reason in {types.FinishReason.STOP, types.FinishReason.MAX_TOKENS}
    usage = event.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count or 0) > 0
    assert (usage.candidates_token_count or 0) > 0


async def test_a_plain_turn(service: SessionServiceAdapter, model: ModelAdapter) -> None:
    agent = LlmAgent(name="root", model=model, generate_content_config=SETTINGS)
    (event,) = await turn(service, agent, "Say hello.")
    assert text_of(event)
    check_final(event)


async def test_a_streamed_turn(service: SessionServiceAdapter, model: ModelAdapter) -> None:
    agent = LlmAgent(name="root", model=model, generate_content_config=SETTINGS)
    *partials, final = await turn(service, agent, "Name three colours.", streaming=True)
    assert len(partials) > 1
    assert all(event.partial for event in partials)
    assert "".join(map(text_of, partials)) == text_of(final) != ""
    check_final(final)


class City(BaseModel):
    """What the model must fill in."""

    city: str = Field(max_length=20)
    inhabitants: int


async def test_a_structured_answer(service: SessionServiceAdapter, model: ModelAdapter) -> None:
    agent = LlmAgent(name="root", model=model, output_schema=City, generate_content_config=SETTINGS)
    (event,) = await turn(service, agent, "A large city and how many people live there.")
    City.model_validate_json(text_of(event))
    check_final(event)


async def test_a_tool_round_trip(service: SessionServiceAdapter, model: ModelAdapter) -> None:
    sums: list[tuple[Any, Any]] = []

    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        sums.append((a, b))
        return {"sum": a + b}

    agent = LlmAgent(
        name="root",
        model=model,
        tools=[add],
        instruction="You add numbers by calling add.",
        generate_content_config=SETTINGS,
    )
    # So small a model does not always take the hint: one of these has to do.
    for words in ("Please add 7 and 8.", "Add 12 and 30.", "add 5 and 6"):
        events = await turn(service, agent, words)
        if len(events) > 1:
            break
    call, result, *_ = events
    (request,), (answered,) = call.get_function_calls(), result.get_function_responses()
    assert request.id == answered.id
    assert (request.name, answered.response) == ("add", {"sum": sum(sums[0])})
    assert isinstance(sums[0][0], int)
    assert call.usage_metadata is not None
    check_final(events[-1])
