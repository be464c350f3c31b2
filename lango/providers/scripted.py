"""A model without a network or a key: it answers from a script or by a simple rule.

The rule calls tools that the user's text names, reports tool results, and otherwise repeats the
text. The same request always gets the same answer. The model `slow` takes a second for each word,
and says more after a tool call: time to watch the answer and to kill the worker of the turn.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from lango.core.context.budget import OTHER_AGENT, request_tokens
from lango.core.context.tokens import estimate_tokens
from lango.core.messages.messages import Message, Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    FinishReason,
    ReasoningDone,
    StreamEvent,
    StreamEventError,
    TextDelta,
    ThoughtDelta,
    ToolCallDone,
    Usage,
)
from lango.core.values import JsonObject, json_text
from lango.providers.base import ModelRequest, ToolSpec

_WORDS: Final = re.compile(r"\s*\S+|\s+")
_EXPLICIT: Final = re.compile(r"(?:^|\band )call (\w+) (\{.*?\})(?= and call |$)", re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTE_MARKS: Final = re.compile(r"<<<\w+>>>\n?")  # ADK's, around the words of another agent
_KEPT_REQUESTS: Final = 100
_SLOW: Final = "slow"
_SECONDS_A_WORD: Final = 1.0  # of the slow model's text; its reasoning and calls have no delay
_SLOWLY: Final = (
    " I say one word each second, so that you have more than half a minute to watch this answer,"
    " to open the console, or to kill the worker that runs this turn."
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault after `after` events: an error, or a stream that breaks off."""

    after: int = 0
    error: Exception | None = None
    """None: the stream ends without Done."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thoughts: str = ""
    reasoning: tuple[Reasoning, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    fault: Fault | None = None

    def events(self) -> Iterator[StreamEvent]:
        """The answer in deltas of a word each, without Done."""
        yield from map(ThoughtDelta, _deltas(self.thoughts))
        yield from map(ReasoningDone, self.reasoning)
        yield from map(TextDelta, _deltas(self.text))
        yield from map(ToolCallDone, self.calls)


Rule = Callable[[ModelRequest], Reply | str]


class ScriptedProvider:
    """Gives the scripted replies in order, then the rule's replies."""

    def __init__(
        self, replies: Iterable[Reply | str] = (), *, rule: Rule | None = None, delay: float = 0.0
    ) -> None:
        self._replies = deque(replies)
        self._rule = rule or demo
        self._delay = delay
        self.requests: deque[ModelRequest] = deque(maxlen=_KEPT_REQUESTS)
        """The last requests, for tests."""

    @property
    def name(self) -> str:
        """The family its reasoning belongs to."""
        return "scripted"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Stream the answer, word by word."""
        self.requests.append(request)
        next_reply = self._replies.popleft() if self._replies else self._rule(request)
        reply = Reply(next_reply) if isinstance(next_reply, str) else next_reply
        for number, event in enumerate(reply.events()):
            if reply.fault and number >= reply.fault.after:
                break
            await asyncio.sleep(self._pause(request, event))
            yield event
        if reply.fault is None:
            yield _done(request, reply)
        elif reply.fault.error is not None:
            yield StreamEventError(reply.fault.error)

    def _pause(self, request: ModelRequest, event: StreamEvent) -> float:
        """Seconds before an event."""
        if request.model != _SLOW:
            return self._delay
        return _SECONDS_A_WORD if isinstance(event, TextDelta) else 0.0


def _done(request: ModelRequest, reply: Reply) -> Done:
    finish = reply.finish_reason or ("tool_calls" if reply.calls else "stop")
    return Done(finish, reply.usage or _usage(request, reply), model=request.model)


def _usage(request: ModelRequest, reply: Reply) -> Usage:
    """The usage by lango's own token estimate."""
    declared = sum(estimate_tokens(json_text(tool.parameters)) for tool in request.tools)
    thoughts = estimate_tokens(reply.thoughts) if reply.thoughts else 0
    answer_tokens = request_tokens(Message("assistant", reply.text, reply.calls))
    prompt = declared + sum(map(request_tokens, request.messages))
    return Usage(input=prompt, output=answer_tokens + thoughts, reasoning=thoughts)


def _deltas(text: str) -> list[str]:
    return _WORDS.findall(text)


def demo(request: ModelRequest) -> Reply:
    """The default rule."""
    results = _trailing_results(request.messages)
    if results:
        outputs = "; ".join(f"{call.name} gave {call.output}" for call in results)
        return _answer(request, f"I asked: {outputs}.{_SLOWLY if request.model == _SLOW else ''}")
    text = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    calls = [] if request.tool_choice == "none" else list(_calls(request, text))
    if calls:
        return Reply(calls=tuple(calls), thoughts="A tool may know more.")
    return _answer(request, _heard(text))


def _heard(text: str) -> str:
    """What the model heard; of another agent's words only these, without ADK's words about them."""
    if text.startswith(OTHER_AGENT):
        return _QUOTE_MARKS.sub("", text.partition("\n")[2]).strip()
    return f"You said: {text}"


def _answer(request: ModelRequest, text: str) -> Reply:
    if request.output_schema is None:
        return Reply(text)
    return Reply(json_text(example(request.output_schema, text, request.output_schema)))


def _trailing_results(messages: Iterable[Message]) -> list[ToolCall]:
    results: list[ToolCall] = []
    for message in messages:
        results = [*results, *message.tool_calls] if message.is_tool else []
    return results


def _calls(request: ModelRequest, text: str) -> Iterator[ToolCall]:
    """The calls that the text asks for: `call name {…} and call name {…}`, or named tools."""
    declared = {tool.name: tool for tool in request.tools}
    number = sum(len(m.tool_calls) for m in request.messages if m.is_assistant)
    explicit = [call for call in _EXPLICIT.findall(text) if call[0] in declared]
    guessed = [
        (tool.name, json_text(_arguments(tool, text)))
        for tool in request.tools
        if not explicit and _is_named(tool.name, text)
    ]
    for name, arguments in explicit or guessed:
        number += 1
        yield ToolCall(f"call_{number}", name, input=arguments)


def _is_named(name: str, text: str) -> bool:
    words = re.escape(name).replace("_", "[_ ]")
    return re.search(rf"\b{words}\b", text, re.IGNORECASE) is not None


def _arguments(tool: ToolSpec, text: str) -> JsonObject:
    return cast(JsonObject, example(tool.parameters, text, tool.parameters))


def example(schema: JsonObject, text: str, root: JsonObject) -> Any:
    """A value that a schema allows, made from the text where possible."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return example(root.get("$defs", {}).get(name, {}), text, root)
    for choices in ("anyOf", "oneOf", "allOf"):
        if schema.get(choices):
            return example(schema[choices][0], text, root)
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else _named(schema["enum"], text)
    return _of_kind(schema, text, root)


def _named(choices: list[Any], text: str) -> Any:
    return next((choice for choice in choices if str(choice) in text), choices[0])


def _is_text(schema: JsonObject) -> bool:
    choices: list[JsonObject] = schema.get("anyOf") or [schema]
    return any(choice.get("type") == "string" for choice in choices)


def _of_kind(schema: JsonObject, text: str, root: JsonObject) -> Any:
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = cast("list[str]", kind)[0]
    number = _NUMBER.search(text)
    match kind:
        case "object":
            properties: dict[str, JsonObject] = schema.get("properties", {})
            needed = schema.get("required", ())
            return {
                name: example(inner, text, root)
                for name, inner in properties.items()
                # An optional text would only repeat the user's words.
                if name in needed or not _is_text(inner)
            }
        case "array":
            return [example(schema["items"], text, root)] if schema.get("items") else []
        case "integer":
            return int(float(number[0])) if number else schema.get("default", 1)
        case "number":
            return float(number[0]) if number else schema.get("default", 1.0)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return text
