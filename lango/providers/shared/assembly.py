"""Assembles one streamed answer: the logic that the decoders of all providers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from lango.core.ids import new_id
from lango.core.messages.messages import Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    FinishReason,
    ReasoningDone,
    StreamEvent,
    TextDelta,
    ThoughtDelta,
    ToolCallDone,
    Usage,
)
from lango.core.values import (
    MAX_DEPTH,
    JsonObject,
    is_deeper,
    joined,
    storable_text,
    strict_json_value,
)
from lango.errors import BadStreamError
from lango.providers.base import ModelRequest
from lango.providers.shared.names import ToolNames
from lango.providers.shared.opaque import pack

_CUT: Final[tuple[FinishReason, ...]] = ("length", "content_filter")
_WHOLE: Final[tuple[FinishReason, ...]] = ("stop", "tool_calls")
_NO_ARGUMENTS: Final = frozenset({"", "null"})
_ADK_PREFIX: Final = "adk-"  # ADK treats such ids as its own and strips them
Nothing: Final[tuple[StreamEvent, ...]] = ()


@dataclass(slots=True)
class OpenCall:
    """A tool call whose arguments are incomplete."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: JsonObject = field(default_factory=dict[str, Any])


class Assembly:
    """Assembles one answer and emits its events.

    Tool calls are held until the end: none of an answer that breaks off may run.
    """

    def __init__(self, provider: str, request: ModelRequest) -> None:
        self.provider = provider
        self.model = request.model
        self.answered_by = ""
        self.request_id = ""
        self.finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._on_usage = request.on_usage
        self.over = False  # the rest of the stream is not needed
        self._names = ToolNames(tool.name for tool in request.tools)
        self._demanding = {tool.name for tool in request.tools if tool.parameters.get("required")}
        self._taken = {call.id for message in request.messages for call in message.tool_calls}
        self._text: list[str] = []
        self._halves: dict[type[StreamEvent], str] = {}
        self._calls: list[ToolCall] = []

    @property
    def usage(self) -> Usage | None:
        """The usage that the provider has reported so far."""
        return self._usage

    @usage.setter
    def usage(self, usage: Usage) -> None:
        self._usage = usage
        if self._on_usage is not None:
            self._on_usage(usage)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def position(self) -> int:
        """The position of the next piece in the answer; see `opaque`."""
        return 1 + len(self._calls) if self._calls or self._text else 0

    def add_text(self, text: str | None) -> Sequence[StreamEvent]:
        """Add text."""
        if not text:
            return Nothing
        if not text.isascii() or self._halves:
            text = self._whole(TextDelta, text)
            if not text:
                return Nothing
        self._text.append(text)
        return (TextDelta(text),)

    def add_reasoning(self, text: str | None) -> Sequence[StreamEvent]:
        """Add reasoning text."""
        if not text:
            return Nothing
        text = self._whole(ThoughtDelta, text)
        return (ThoughtDelta(text),) if text else Nothing

    def reason(
        self, text: str, item: JsonObject | None, position: int | None = None
    ) -> Sequence[StreamEvent]:
        """Add a finished piece of reasoning, with the item that the family wants back."""
        opaque = "" if item is None else pack(self.position if position is None else position, item)
        clean_text = storable_text(text)
        return (ReasoningDone(Reasoning(clean_text, self.provider, self.model, opaque)),)

    def call(self, call_id: str | None, name: str | None, arguments: str) -> bool:
        """Add a tool call; False if it was cut off with the answer, and is left out."""
        call_input = self._arguments(name or "", arguments)
        if call_input is None:
            return False
        real = self._names.real(storable_text(name or ""))
        self._calls.append(ToolCall(self._free_id(call_id), real, call_input))
        return True

    def end(self) -> Iterator[StreamEvent]:
        """The last events: complete calls, then Done; BadStreamError without a finish marker."""
        if self.finish is None:
            self.broken("The answer broke off: it ended without its finish marker.")
        yield from self._left_over()
        yield from map(ToolCallDone, self._calls)
        finish = "tool_calls" if self._calls and self.finish == "stop" else self.finish
        model = self.answered_by or self.model
        yield Done(finish, self.usage, model=model, request_id=self.request_id)

    def broken(self, problem: str) -> NoReturn:
        """Reject the answer: raises BadStreamError."""
        raise BadStreamError(problem)

    def _arguments(self, name: str, arguments: str) -> str | None:
        """The arguments if they are an object; None if the answer was cut off within them."""
        problem = "a tool call without a name"
        if name:
            if arguments.strip() in _NO_ARGUMENTS and self._needs_none(name):
                arguments = "{}"
            problem = problem_of_arguments(arguments)
        if problem and self.finish not in _CUT:
            self.broken(f"The model's answer holds {problem}: {name[:80]}".rstrip(": "))
        return None if problem else arguments

    def _needs_none(self, name: str) -> bool:
        """Whether a call without arguments is complete, and not cut off before them."""
        return self.finish in _WHOLE and self._names.real(name) not in self._demanding

    def _free_id(self, call_id: str | None) -> str:
        chosen_id = storable_text(call_id or "")
        if not chosen_id or chosen_id in self._taken or chosen_id.startswith(_ADK_PREFIX):
            chosen_id = new_id("call")
        self._taken.add(chosen_id)
        return chosen_id

    def _whole(self, kind: type[StreamEvent], text: str) -> str:
        """The text without a trailing high surrogate, which waits for its low surrogate."""
        text = self._halves.pop(kind, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind], text = text[-1], text[:-1]
        return storable_text(joined([text]))

    def _left_over(self) -> Iterator[StreamEvent]:
        """Surrogates whose other half never came."""
        for kind, half in list(self._halves.items()):
            self._halves.clear()
            text = storable_text(half)
            if kind is TextDelta:
                self._text.append(text)
                yield TextDelta(text)
            else:
                yield ThoughtDelta(text)


def problem_of_arguments(arguments: str) -> str:
    """What is wrong with a call's arguments; empty if they are a storable JSON object."""
    try:
        value: Any = strict_json_value(arguments)
    except (ValueError, RecursionError):
        return "a tool call with broken arguments"
    if not isinstance(value, dict):
        return "a tool call whose arguments are no object"
    if is_deeper(value, MAX_DEPTH):
        return f"a tool call with arguments nested deeper than {MAX_DEPTH}"
    return ""
