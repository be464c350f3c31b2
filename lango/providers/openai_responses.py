"""OpenAI's Responses API, stateless: each request sends the whole history, `store` is false."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from lango.core.messages.messages import Media, Message
from lango.core.messages.streams import FinishReason, StreamEvent, Usage
from lango.core.values import JsonObject
from lango.providers.base import ModelRequest
from lango.providers.shared import media as medium
from lango.providers.shared.assembly import Assembly, Nothing
from lango.providers.shared.chunks import (
    field_count,
    field_key,
    field_label,
    field_object,
    field_objects,
    field_text,
    required_object,
)
from lango.providers.shared.errors import VendorError
from lango.providers.shared.names import RESPONSES_IDS, ToolNames, arguments_text
from lango.providers.shared.opaque import interleave, own
from lango.providers.shared.openai_sdk import FAULTS, OpenAIProvider
from lango.providers.shared.schemas import closed, is_strict, tool_parameters
from lango.providers.shared.stops import StopText

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAME: Final = "openai"
_THINKING: Final[Mapping[bool, JsonObject]] = {
    True: {"effort": "medium", "summary": "auto"},
    False: {"effort": "low"},  # the lowest that all models support
}
_INCOMPLETE: Final[Mapping[object, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
_PHASE: Final = "phase"

PartKey: TypeAlias = tuple[str, str | float | None, str | float | None]
"""Which part of the output: the kind of its name, the name of the item, the number in it."""


def encode_request(request: ModelRequest, *, provider: str = NAME) -> JsonObject:
    """The arguments of `responses.create`. It has no stop sequences: the decoder applies them."""
    names = ToolNames(tool.name for tool in request.tools)
    messages = list(request.messages)
    body: JsonObject = {"model": request.model, "stream": True, "store": False}
    if messages and messages[0].role == "system":
        body["instructions"] = messages.pop(0).content
    body["input"] = [item for message in messages for item in _items(message, provider, names)]
    body |= _tools(request, names)
    if request.output_schema is not None:
        shut = closed(request.output_schema)
        strict = is_strict(shut)
        schema = shut if strict else request.output_schema
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict}
        body["text"] = {"format": form}
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
        "reasoning": None if request.thinking is None else _THINKING[request.thinking],
    }
    body |= {key: value for key, value in options.items() if value is not None}
    return body | dict(request.extra)


def _tools(request: ModelRequest, names: ToolNames) -> JsonObject:
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "name": names.wire(tool.name),
            "description": tool.description,
            "parameters": tool_parameters(tool.parameters),
            "strict": False,  # by default the server would make the schema strict
        }
        for tool in request.tools
    ]
    choice: Any = request.tool_choice
    if choice == "required" and request.allowed_tools:
        allowed = [{"type": "function", "name": names.wire(name)} for name in request.allowed_tools]
        allowed_tools = {"type": "allowed_tools", "mode": "required", "tools": allowed}
        choice = allowed[0] if len(allowed) == 1 else allowed_tools
    return {"tools": tools} | ({} if choice == "auto" else {"tool_choice": choice})


def _items(message: Message, provider: str, names: ToolNames) -> Iterator[JsonObject]:
    if message.is_tool and message.tool_calls:
        media_parts = [_part(media) for media in message.media]
        for number, call in enumerate(message.tool_calls):
            output: Any = call.output or "{}"
            if media_parts and number == len(message.tool_calls) - 1:
                output = [{"type": "input_text", "text": output}, *media_parts]
            call_id = RESPONSES_IDS(call.id)
            yield {"type": "function_call_output", "call_id": call_id, "output": output}
    elif message.is_assistant:
        yield from _assistant(message, provider, names)
    else:
        parts = [{"type": "input_text", "text": message.content}] if message.content else []
        parts += [_part(media) for media in message.media]
        role = "system" if message.role == "system" else "user"
        if parts:
            yield {"type": "message", "role": role, "content": parts}


def _assistant(message: Message, provider: str, names: ToolNames) -> Iterator[JsonObject]:
    pieces = own(message, provider)
    content = "\n".join(filter(None, (message.content, *map(medium.note, message.media))))
    text: list[JsonObject] = []
    if content:
        text = [{"type": "message", "role": "assistant", "content": content}]
        phases = [piece[_PHASE] for _, piece in pieces if _PHASE in piece]
        text[0] |= {_PHASE: phases[-1]} if phases else {}
    calls: list[JsonObject] = [
        {
            "type": "function_call",
            "call_id": RESPONSES_IDS(call.id),
            "name": names.wire(call.name),
            "arguments": arguments_text(call.input),
        }
        for call in message.tool_calls
    ]
    thoughts = [(position, piece) for position, piece in pieces if _PHASE not in piece]
    items = list(interleave(thoughts, text, calls))
    # The API refuses trailing reasoning without the item that followed it.
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    yield from items


def _part(media: Media) -> JsonObject:
    text, address = medium.text_of(media), medium.url(media)
    if text is not None:
        return {"type": "input_text", "text": text or "(an empty file)"}
    if medium.kind(media) == "image" and address:
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if media.mime_type == "application/pdf" and media.data:
        name = medium.file_name(media)
        return {"type": "input_file", "filename": name, "file_data": address}
    if media.mime_type == "application/pdf" and address:
        return {"type": "input_file", "file_url": address}
    return {"type": "input_text", "text": medium.note(media)}


class StreamDecoder:
    """Decodes one answer's chunks into events."""

    def __init__(self, request: ModelRequest, *, provider: str = NAME) -> None:
        self.answer = Assembly(provider, request)
        self._stops = StopText(request.stop)
        self._received: set[PartKey] = set()  # the parts of text that arrived
        self._open: set[object] = set()  # unfinished calls
        self._calls: list[tuple[str | None, str | None, str]] = []
        self._feeders: Mapping[object, Callable[[JsonObject], Sequence[StreamEvent]]] = {
            "response.output_text.delta": self._text,
            "response.output_text.done": self._text_done,
            "response.refusal.delta": self._text,
            "response.refusal.done": self._text_done,
            "response.reasoning_summary_text.delta": self._thought,
            "response.reasoning_text.delta": self._thought,
            "response.reasoning_summary_part.added": self._next_thought,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._ended,
            "response.incomplete": self._ended,
            "response.failed": self._failed,
            "error": self._error,
        }

    def feed(self, chunk: JsonObject) -> Sequence[StreamEvent]:
        """The events in a chunk; none for unknown kinds."""
        feeder = self._feeders.get(field_key(chunk.get("type")))
        return feeder(chunk) if feeder is not None else Nothing

    def finish(self) -> Iterator[StreamEvent]:
        """The last events of the answer."""
        yield from self.answer.add_text(self._stops.rest())
        if self.answer.finish is not None and not self._stops.reached:
            if self._open and self.answer.finish in ("stop", "tool_calls"):
                self.answer.broken("The answer broke off in the middle of a tool call.")
            for call in self._calls:
                self.answer.call(*call)
        yield from self.answer.end()

    def _text(self, event: JsonObject) -> Sequence[StreamEvent]:
        self._received |= _part_keys(event)
        return self._say(field_text(event.get("delta")))

    def _text_done(self, event: JsonObject) -> Sequence[StreamEvent]:
        """Text that arrived without deltas; otherwise it repeats them."""
        keys = _part_keys(event)
        if not self._received.isdisjoint(keys):
            return Nothing
        self._received |= keys
        return self._say(field_text(event.get("text")) or field_text(event.get("refusal")))

    def _say(self, text: str) -> Sequence[StreamEvent]:
        events = self.answer.add_text(self._stops.feed(text))
        if self._stops.reached:
            self.answer.finish, self.answer.over = "stop", True
        return events

    def _thought(self, event: JsonObject) -> Sequence[StreamEvent]:
        return self.answer.add_reasoning(field_text(event.get("delta")))

    def _next_thought(self, event: JsonObject) -> Sequence[StreamEvent]:
        return self.answer.add_reasoning("\n\n") if event.get("summary_index") else Nothing

    def _item_added(self, event: JsonObject) -> Sequence[StreamEvent]:
        if required_object(event.get("item")).get("type") == "function_call":
            self._open.add(field_key(event.get("output_index")))
        return Nothing

    def _item_done(self, event: JsonObject) -> Sequence[StreamEvent]:
        item = required_object(event.get("item"))
        kind = item.get("type")
        if kind == "function_call":
            self._call_done(item, field_key(event.get("output_index")))
        elif kind == "reasoning":
            return self._reasoned(item)
        elif kind == "message":
            return self._message_done(item, event)
        return Nothing

    def _message_done(self, item: JsonObject, event: JsonObject) -> Sequence[StreamEvent]:
        events: list[StreamEvent] = []
        for number, part in enumerate(field_objects(item.get("content"))):
            item_fields = {"item_id": item.get("id"), "output_index": event.get("output_index")}
            events += self._text_done({**part, **item_fields, "content_index": number})
        if phase := item.get(_PHASE):
            events += self.answer.reason("", {_PHASE: phase})
        return events

    def _call_done(self, item: JsonObject, index: object) -> None:
        if item.get("status") == "incomplete":
            self._open.add(index)
            return
        self._open.discard(index)
        call_id, name, arguments = map(item.get, ("call_id", "name", "arguments"))
        self._calls.append((field_text(call_id), field_text(name), field_text(arguments)))

    def _reasoned(self, item: JsonObject) -> Sequence[StreamEvent]:
        parts = [*field_objects(item.get("summary")), *field_objects(item.get("content"))]
        # Without encrypted content the item exists only in the server's storage.
        back = _without_nulls(item) if item.get("encrypted_content") else None
        text = "\n\n".join(field_text(part.get("text")) for part in parts)
        position = 1 + len(self._calls) if self._calls else min(self.answer.position, 1)
        return self.answer.reason(text, back, position) if text or back else Nothing

    def _ended(self, event: JsonObject) -> Sequence[StreamEvent]:
        answer, response = self.answer, required_object(event.get("response"))
        is_silent = not self._received and not self._calls
        answer.finish = "stop" if event["type"] == "response.completed" else "other"
        reason = field_key(field_object(response.get("incomplete_details")).get("reason"))
        if reason:
            answer.finish = _INCOMPLETE.get(reason, "other")
        answer.answered_by = field_label(response.get("model")) or answer.answered_by
        self._count(response)
        return self._all_at_once(response) if is_silent else Nothing

    def _all_at_once(self, response: JsonObject) -> Sequence[StreamEvent]:
        """The output of a response that arrived without any part of it before."""
        events: list[StreamEvent] = []
        for number, item in enumerate(field_objects(response.get("output"))):
            if item.get("type") in ("message", "function_call"):
                events += self._item_done({"output_index": number, "item": item})
        return events

    def _count(self, response: JsonObject) -> None:
        if usage := field_object(response.get("usage")):
            self.answer.usage = _usage(usage)

    def _failed(self, event: JsonObject) -> NoReturn:
        response = required_object(event.get("response"))
        self._count(response)
        error = field_object(response.get("error")) or {"code": "server_error"}
        message = str(error.get("message") or "The response failed.")
        raise FAULTS.error(VendorError(message, None, (str(error.get("code")),)))

    def _error(self, event: JsonObject) -> NoReturn:
        code, message = str(event.get("code")), str(event.get("message"))
        raise FAULTS.error(VendorError(message, None, (code,)))


def _part_keys(event: JsonObject) -> set[PartKey]:
    """Which part of the output an event belongs to, by its item's id and by its number.

    Some servers leave one of them out, and GitHub Copilot's has another id in every event.
    """
    part = field_key(event.get("content_index"))
    keys = {(name, field_key(event.get(name)), part) for name in ("item_id", "output_index")}
    return {key for key in keys if key[1] is not None} or {("", None, part)}


def _without_nulls(value: Any) -> Any:
    """A value of a response as a request may hold it: a request has no nulls."""
    if isinstance(value, dict):
        fields = cast(JsonObject, value).items()
        return {name: _without_nulls(field) for name, field in fields if field is not None}
    return [*map(_without_nulls, cast(list[Any], value))] if isinstance(value, list) else value


def _usage(usage: JsonObject) -> Usage:
    input_details = field_object(usage.get("input_tokens_details"))
    output_details = field_object(usage.get("output_tokens_details"))
    return Usage(
        input=field_count(usage.get("input_tokens")),
        output=field_count(usage.get("output_tokens")),
        cached=field_count(input_details.get("cached_tokens")),
        reasoning=field_count(output_details.get("reasoning_tokens")),
        written=field_count(input_details.get("cache_write_tokens")),
    )


class OpenAIResponsesProvider(OpenAIProvider):
    """OpenAI's Responses API."""

    family = NAME

    def _resource(self, client: AsyncOpenAI) -> Any:
        return client.responses.with_streaming_response

    def _decoder(self, request: ModelRequest) -> StreamDecoder:
        return StreamDecoder(request, provider=self._name)

    def _encode(self, request: ModelRequest) -> JsonObject:
        return encode_request(request, provider=self._name)
