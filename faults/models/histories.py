"""G13: random histories, cut to random budgets, checked by the rules of every vendor."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from google.adk.models.llm_request import LlmRequest
from google.genai import types

from faults.harness import Guarantee, Outcome, Run
from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.convert import convert_messages
from lango.adk.models.reasoning import reasoning_of, thought_part
from lango.core.context.budget import open_turn, request_tokens
from lango.core.messages.messages import Message, Reasoning
from lango.core.messages.pairing import pair_calls
from lango.core.messages.streams import StreamEvent
from lango.core.values import json_object, json_value
from lango.errors import ContextTooLongError
from lango.providers.base import ModelRequest, Provider
from lango.testing.wires import WIRES, Call, ScriptedAnswer, WireServer
from tests.support.conversations import NAMES, SOME_THOUGHTS, problems, random_conversation

_THOUGHTFUL: Final = ScriptedAnswer(
    "So.", (Call("look", '{"q":"x"}'),), "Let me see.", "c2lnbmF0dXJl"
)
_SCHEMA: Final = {"type": "object", "properties": {"q": {"type": "string"}}}


@dataclass
class RecordingProvider:
    """A provider that also records its requests for the checks."""

    provider: Provider
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    @property
    def name(self) -> str:
        return self.provider.name

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        return self.provider.stream(request)


@dataclass
class Station:
    """One provider API: a server with its vendor's rules, and our model that calls it."""

    server: WireServer
    overheard: RecordingProvider
    model: ModelAdapter

    @property
    def name(self) -> str:
        return self.server.wire.name

    async def ask(self, request: LlmRequest) -> list[types.Part]:
        """Send a request; return the parts of the answer."""
        answers = [answer async for answer in self.model.generate_content_async(request)]
        return (answers[-1].content and answers[-1].content.parts) or []

    async def thoughts(self) -> list[Reasoning]:
        """Reasoning as this provider API returns it."""
        self.server.say(_THOUGHTFUL)
        parts = await self.ask(_request([Message("user", "hi")], system=False))
        self.server.say(ScriptedAnswer("Well."))
        return [reasoning_of(part) for part in parts if part.thought]


def _request(history: Sequence[Message], *, system: bool) -> LlmRequest:
    """The history as ADK would send it to a model."""
    declared = [
        types.FunctionDeclaration(name=name, description=name, parameters_json_schema=_SCHEMA)
        for name in NAMES
    ]
    config = types.GenerateContentConfig(
        system_instruction="Be brief." if system else None,
        tools=[types.Tool(function_declarations=declared)],
    )
    return LlmRequest(contents=[_content(message) for message in history], config=config)


def _content(message: Message) -> types.Content:
    parts = [thought_part(reasoning) for reasoning in message.reasoning]
    if message.is_tool:
        for call in message.tool_calls:
            answer = types.FunctionResponse(
                id=call.id or None, name=call.name, response=json_object(call.output)
            )
            parts.append(types.Part(function_response=answer))
        return types.Content(role="user", parts=parts)
    parts += [types.Part(text=message.content)] if message.content else []
    for media in message.media:
        blob = types.Blob(mime_type=media.mime_type, data=media.data)
        parts.append(types.Part(inline_data=blob))
    for call in message.tool_calls:
        made = types.FunctionCall(
            id=call.id or None, name=call.name, args=json_value(call.input or "{}")
        )
        parts.append(types.Part(function_call=made))
    return types.Content(role="model" if message.is_assistant else "user", parts=parts)


class Trial:
    """The stations, and the requests they received."""

    def __init__(self, stations: Sequence[Station], outcome: Outcome) -> None:
        self.stations = stations
        self.outcome = outcome
        self.counts: Counter[str] = Counter()
        self.thoughts: list[Reasoning] = list(SOME_THOUGHTS)

    async def learn(self) -> None:
        """Collect reasoning of every vendor for the histories."""
        for station in self.stations:
            self.thoughts += await station.thoughts()

    async def history(self, seed: int) -> None:
        """Send one history to every provider API, with the same budget."""
        draw = Random(seed)
        history = random_conversation(draw, draw.choice((1, 2, 4, 8)), self.thoughts)
        budget = round(2 ** draw.uniform(7, 15))
        request = _request(history, system=draw.random() < 0.5)
        for station in self.stations:
            what = f"seed {seed}, {station.name}, budget {budget}"
            try:
                await self._sent(station, request, budget, what)
            except ContextTooLongError as error:
                self._too_long(request, budget, what, error)
            except Exception as error:  # noqa: BLE001 - whatever broke goes into the report
                self.outcome.fail(f"{what}: {type(error).__name__}: {error!s:.200}")

    async def _sent(self, station: Station, request: LlmRequest, budget: int, what: str) -> None:
        station.model.token_budget = budget
        station.overheard.requests.clear()
        station.server.refused.clear()
        try:
            await station.ask(request)
        finally:
            refused = "; ".join(station.server.refused)
            self.outcome.expect(not refused, f"{what}: refused: {refused:.300}")
        [sent] = station.overheard.requests
        talk = [message for message in sent.messages if message.role != "system"]
        whole = pair_calls(convert_messages(request.contents))
        last = whole[open_turn(whole) :]
        tokens = sum(map(request_tokens, talk))
        self.outcome.expect(problems(talk) == [], f"{what}: {problems(talk)[:2]}")
        self.outcome.expect(tokens <= budget, f"{what}: {tokens} tokens")
        users = [message for message in last if message.role == "user"]
        self.outcome.expect(all(user in talk for user in users), f"{what}: the user was cut")
        self.outcome.expect(len(talk) >= len(last), f"{what}: the open turn was cut")
        self.counts["sent"] += 1
        self.counts["cut"] += len(talk) < len(whole)

    def _too_long(self, request: LlmRequest, budget: int, what: str, error: Exception) -> None:
        """Only an open turn that does not fit even with shortened outputs may be refused."""
        whole = pair_calls(convert_messages(request.contents))
        turn = whole[open_turn(whole) :]
        fixed = sum(request_tokens(message) for message in turn if not message.is_tool)
        shortened = sum(min(request_tokens(m), 120) for m in turn if m.is_tool)
        self.outcome.expect(fixed + shortened > budget, f"{what}: {error}, without need")
        self.counts["too long"] += 1


async def _histories(run: Run, outcome: Outcome) -> None:
    async with AsyncExitStack() as stack:
        stations: list[Station] = []
        for name in WIRES:
            server = await stack.enter_async_context(WireServer(name, ScriptedAnswer("Well.")))
            provider: Any = server.provider()
            stack.push_async_callback(provider.close)
            overheard = RecordingProvider(provider)
            stations.append(Station(server, overheard, ModelAdapter(overheard, "some-model")))
        trial = Trial(stations, outcome)
        await trial.learn()
        for number in range(run.count):
            await trial.history(run.seed + number)
    counts = trial.counts
    outcome.note(f"{run.count} histories × {len(WIRES)} wires")
    outcome.note(f"{counts['sent']} sent, {counts['cut']} of them cut")
    outcome.note(f"{counts['too long']} too long by their open turn alone")


def every_request_is_valid(run: Run) -> Outcome:
    """Every history, even a broken one, becomes a request that each vendor accepts."""
    outcome = Outcome()
    asyncio.run(_histories(run, outcome))
    return outcome


G13: Final = Guarantee(
    "G13",
    "random histories cut to random budgets: valid on every wire, the user's last message kept",
    full=10_000,
    ci=1_000,
    run=every_request_is_valid,
)
