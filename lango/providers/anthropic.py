"""Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from lango.core.context.budget import ANSWER_ROOM
from lango.core.messages.messages import Media, Message
from lango.core.messages.streams import FinishReason, StreamEvent, Usage
from lango.core.values import JsonObject, joined, json_object, json_text
from lango.errors import (
    AuthenticationError,
    BadRequestError,
    BadStreamError,
    ContextTooLongError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
    UnknownModelError,
)
from lango.providers.base import ModelRequest
from lango.providers.shared import media as medium
from lango.providers.shared.alternating import SideMessages, take_turns, without_instruction
from lango.providers.shared.assembly import Assembly, Nothing
from lango.providers.shared.cache_marks import CACHE_CONTROL, mark
from lango.providers.shared.chunks import (
    ChunkFormat,
    Chunks,
    field_count,
    field_key,
    field_label,
    field_object,
    field_text,
    json_chunk,
    open_chunks,
    required_object,
)
from lango.providers.shared.decoding import missing
from lango.providers.shared.errors import FaultTable, VendorError
from lango.providers.shared.names import ANTHROPIC_IDS, ToolNames
from lango.providers.shared.opaque import interleave, own
from lango.providers.shared.schemas import EMPTY, closed, in_words, is_open, plain, tool_parameters
from lango.providers.shared.sdk import SdkProvider

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

NAME: Final = "anthropic"
THINKING_TOKENS: Final = 4_096
"""Reasoning budget for models that require one; added to the answer's tokens."""
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)*(\d+)(?:[-.](\d{1,2}))?(?![\d])")
_ADAPTIVE: Final = (4, 6)
_FINISH: Final[Mapping[object, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
FAULTS: Final = FaultTable(
    codes={
        "authentication_error": AuthenticationError,
        "permission_error": AuthenticationError,
        "billing_error": AuthenticationError,
        "not_found_error": UnknownModelError,
        "request_too_large": ContextTooLongError,
        "rate_limit_error": RateLimitedError,
        "timeout_error": ModelTimeoutError,
        "overloaded_error": ModelUnavailableError,
        "api_error": ModelUnavailableError,
        "invalid_request_error": BadRequestError,
    },
    too_long=("prompt is too long", "exceed context limit", "input is too long"),  # last: Bedrock
)

REQUEST_ID: Final = "request-id"
_EVENTS: Final = frozenset(
    (
        b"message_start",
        b"message_delta",
        b"message_stop",
        b"content_block_start",
        b"content_block_delta",
        b"content_block_stop",
    )
)
_INPUTS: Final = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
_NO_KEY: Final = "resolve authentication method"
"""Part of the SDK's error message when it has no key."""


def encode_request(request: ModelRequest, *, provider: str = NAME) -> JsonObject:
    """The arguments of `messages.create`."""
    instruction, conversation = without_instruction(request.messages)
    names = ToolNames(tool.name for tool in request.tools)
    messages = [_turn(turn, provider, names) for turn in take_turns(conversation)]
    body: JsonObject = {
        "model": request.model,
        "max_tokens": request.max_tokens or ANSWER_ROOM,
        "messages": messages,
        "stream": True,
    }
    if request.output_schema is not None and is_open(request.output_schema):
        instruction = f"{instruction}\n\n{in_words(request.output_schema)}".strip()
    elif request.output_schema is not None:
        schema = plain(closed(request.output_schema))
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if instruction.strip():
        body["system"] = instruction
    body |= _tools(request, names, messages)
    if request.thinking and body.get("tool_choice", {}).get("type") not in ("any", "tool"):
        body |= _thinking(request, body["max_tokens"], messages)
    options = {
        "temperature": None if "thinking" in body else request.temperature,
        "top_p": None if "thinking" in body else request.top_p,
        "stop_sequences": [stop for stop in request.stop if stop.strip()] or None,
    }
    body |= {key: value for key, value in options.items() if value is not None}
    extra = dict(request.extra)
    if CACHE_CONTROL not in extra:
        mark(body, cut=request.cut)
    elif extra[CACHE_CONTROL] is None:
        del extra[CACHE_CONTROL]
    return body | extra


def _tools(request: ModelRequest, names: ToolNames, messages: list[JsonObject]) -> JsonObject:
    tools = list(request.tools)
    choice: JsonObject | None = None
    if request.tool_choice == "required":
        if request.allowed_tools:
            tools = [tool for tool in tools if tool.name in request.allowed_tools]
        is_single = len(tools) == 1
        choice = (
            {"type": "tool", "name": names.wire(tools[0].name)} if is_single else {"type": "any"}
        )
    elif request.tool_choice == "none":
        choice = {"type": "none"}
    declared: list[JsonObject] = [
        {
            "name": names.wire(tool.name),
            "description": tool.description,
            "input_schema": tool_parameters(tool.parameters),
        }
        for tool in tools
    ]
    if not declared:
        # A history with calls is refused unless some tool is declared.
        called_names = {
            b["name"] for m in messages for b in m["content"] if b["type"] == "tool_use"
        }
        declared = [{"name": name, "input_schema": EMPTY} for name in sorted(called_names)]
        choice = {"type": "none"}
    if not declared:
        return {}
    return {"tools": declared} | ({"tool_choice": choice} if choice else {})


def _thinking(request: ModelRequest, max_tokens: int, messages: list[JsonObject]) -> JsonObject:
    version = _VERSION.search(request.model)
    if version and (int(version[1]), int(version[2] or 0)) >= _ADAPTIVE:
        return {"thinking": {"type": "adaptive", "display": "summarized"}}
    # Within a tool loop, older models require each assistant message to start with thinking.
    for message in reversed(messages):
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "user" and "tool_result" not in kinds:
            break
        if message["role"] == "assistant" and kinds[0] not in ("thinking", "redacted_thinking"):
            return {}
    budget = {"type": "enabled", "budget_tokens": THINKING_TOKENS}
    return {"thinking": budget, "max_tokens": max_tokens + THINKING_TOKENS}


def _turn(turn: SideMessages, provider: str, names: ToolNames) -> JsonObject:
    if turn.side == "assistant":
        content = [b for message in turn.messages for b in _assistant(message, provider, names)]
        return {"role": "assistant", "content": content}
    blocks = [block for message in turn.messages for block in _user(message)]
    blocks.sort(key=lambda block: block["type"] != "tool_result")  # results come first
    return {"role": "user", "content": blocks}


def _user(message: Message) -> Iterator[JsonObject]:
    media_blocks = [_block(media) for media in message.media]
    if message.is_tool and message.tool_calls:
        for number, call in enumerate(message.tool_calls):
            content: list[JsonObject] = [_text(call.output if call.output.strip() else "{}")]
            if number == len(message.tool_calls) - 1:
                content += media_blocks
            yield {
                "type": "tool_result",
                "tool_use_id": ANTHROPIC_IDS(call.id),
                "content": content,
            }
        return
    yield from media_blocks
    if message.content.strip():
        yield _text(message.content)


def _assistant(message: Message, provider: str, names: ToolNames) -> Iterator[JsonObject]:
    texts = [_text(message.content)] if message.content.strip() else []
    texts += [_text(medium.note(media)) for media in message.media]
    calls: list[JsonObject] = [
        {
            "type": "tool_use",
            "id": ANTHROPIC_IDS(call.id),
            "name": names.wire(call.name),
            "input": json_object(call.input or "{}"),
        }
        for call in message.tool_calls
    ]
    return interleave(own(message, provider), texts, calls)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _block(media: Media) -> JsonObject:
    text, address = medium.text_of(media), medium.url(media)
    if text is not None and text.strip():
        return _text(text)
    pdf = media.mime_type == "application/pdf"
    if not address or not (pdf or media.mime_type in _IMAGES):
        return _text(medium.note(media))
    source: JsonObject = {"type": "url", "url": address}
    if media.data:
        data = medium.base64_text(media)
        source = {"type": "base64", "media_type": media.mime_type, "data": data}
    return {"type": "document" if pdf else "image", "source": source}


@dataclass(slots=True)
class _Block:
    """An unfinished block of an answer."""

    start: JsonObject
    text: list[str] = field(default_factory=list[str])
    signature: list[str] = field(default_factory=list[str])


class StreamDecoder:
    """Decodes one answer's chunks into events."""

    def __init__(self, request: ModelRequest, *, provider: str = NAME) -> None:
        self.answer = Assembly(provider, request)
        self._blocks: dict[object, _Block] = {}
        self._calls: list[tuple[str | None, str | None, str]] = []
        self._feeders: Mapping[object, Callable[[JsonObject], Sequence[StreamEvent]]] = {
            "message_start": self._started,
            "content_block_start": self._block_started,
            "content_block_delta": self._delta,
            "content_block_stop": self._block_ended,
            "message_delta": self._message,
        }

    def feed(self, chunk: JsonObject) -> Sequence[StreamEvent]:
        """The events in a chunk; none for unknown kinds."""
        feeder = self._feeders.get(field_key(chunk.get("type")))
        return feeder(chunk) if feeder is not None else Nothing

    def finish(self) -> Iterator[StreamEvent]:
        """The last events of the answer."""
        if self.answer.finish is not None:
            is_complete = self.answer.finish in ("stop", "tool_calls")
            if is_complete and any(
                b.start.get("type") == "tool_use" for b in self._blocks.values()
            ):
                self.answer.broken("The answer broke off in the middle of a tool call.")
            for call in self._calls:
                self.answer.call(*call)
        yield from self.answer.end()

    def _started(self, event: JsonObject) -> Sequence[StreamEvent]:
        message = required_object(event.get("message"))
        self.answer.answered_by = field_label(message.get("model"))
        self.answer.usage = _usage(field_object(message.get("usage")), Usage())
        return Nothing

    def _block_started(self, event: JsonObject) -> Sequence[StreamEvent]:
        start, index = required_object(event.get("content_block")), field_key(event.get("index"))
        unfinished = self._blocks.get(index)
        if unfinished is not None and _is(unfinished.start, "tool_use"):
            self.answer.broken("The answer broke off in the middle of a tool call.")
        self._blocks[index] = _Block(start)
        return (
            self.answer.add_text(field_text(start.get("text"))) if _is(start, "text") else Nothing
        )

    def _delta(self, event: JsonObject) -> Sequence[StreamEvent]:
        block, delta = self._block(event), required_object(event.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta":
            return self.answer.add_text(field_text(delta.get("text")))
        if kind == "thinking_delta":
            thought = field_text(delta.get("thinking"))
            block.text.append(thought)
            return self.answer.add_reasoning(thought)
        if kind == "signature_delta":
            block.signature.append(field_text(delta.get("signature")))
        elif kind == "input_json_delta":
            block.text.append(field_text(delta.get("partial_json")))
        return Nothing

    def _block(self, event: JsonObject) -> _Block:
        """The block that an event continues."""
        block = self._blocks.get(field_key(event.get("index")))
        return block or self.answer.broken("The answer continues a block that it never started.")

    def _block_ended(self, event: JsonObject) -> Sequence[StreamEvent]:
        block = self._block(event)
        del self._blocks[event.get("index")]
        start, text = block.start, joined(block.text)
        position = 1 + len(self._calls) if self._calls else min(self.answer.position, 1)
        if _is(start, "tool_use"):
            initial_input = json_text(start["input"]) if start.get("input") else ""
            call_id, name = field_text(start.get("id")), field_text(start.get("name"))
            self._calls.append((call_id, name, text or initial_input))
        elif _is(start, "thinking"):
            text = field_text(start.get("thinking")) + text
            signature = field_text(start.get("signature")) + "".join(block.signature)
            item = {"type": "thinking", "thinking": text, "signature": signature}
            return self.answer.reason(text, item if signature else None, position)
        elif _is(start, "redacted_thinking"):
            item = {"type": "redacted_thinking", "data": start.get("data")}
            return self.answer.reason("", item, position)
        return Nothing

    def _message(self, event: JsonObject) -> Sequence[StreamEvent]:
        usage, delta = event.get("usage"), required_object(event.get("delta"))
        if usage is not None:
            self.answer.usage = _usage(field_object(usage), self.answer.usage or Usage())
        if delta.get("stop_reason"):
            self.answer.finish = _FINISH.get(field_key(delta["stop_reason"]), "other")
        return Nothing


def _is(block: JsonObject, kind: str) -> bool:
    return block.get("type") == kind


def _usage(usage: JsonObject, before: Usage) -> Usage:
    """The running totals; a later report may omit what an earlier one contained."""
    read, written, uncached = before.cached, before.written, before.input
    uncached -= read + written
    reported = [usage.get(name) for name in _INPUTS]
    if any(map(field_count, reported)):
        read, written, uncached = (
            earlier if count is None else field_count(count)
            for earlier, count in zip((read, written, uncached), reported, strict=True)
        )
    details = field_object(usage.get("output_tokens_details"))
    return Usage(
        input=read + written + uncached,
        output=field_count(usage.get("output_tokens")) or before.output,
        cached=read,
        reasoning=field_count(details.get("thinking_tokens")) or before.reasoning,
        written=written,
    )


def _read_chunk(name: bytes, data: bytes) -> JsonObject | None:
    if not name and data.startswith(b"{"):  # some gateways leave the names out
        name = field_label(json_chunk(data).get("type")).encode(errors="replace")
    if name == b"error":
        raise _reported(data)
    if name not in _EVENTS:  # pings, and what the API may add
        return None
    chunk = json_chunk(data)
    chunk.setdefault("type", name.decode())
    return chunk


def _reported(data: bytes) -> ModelError:
    try:
        body = json_chunk(data)
    except (ValueError, BadStreamError):
        body = {}
    return reported_error(body, data.decode(errors="replace") or "The server reported an error.")


FORMAT: Final = ChunkFormat(REQUEST_ID, _read_chunk)


class AnthropicProvider(SdkProvider["AsyncAnthropic", JsonObject]):
    """Anthropic's Messages API."""

    family = NAME

    def _make(self) -> AsyncAnthropic:
        try:
            import anthropic
        except ImportError as error:
            raise missing("anthropic") from error
        # Twice the idle time, so that lango's own timeout fires first.
        patience = anthropic.Timeout(2 * self._timeouts.idle, connect=self._timeouts.connect)
        return anthropic.AsyncAnthropic(
            api_key=self._api_key, base_url=self._base_url, timeout=patience, max_retries=0
        )

    def _resource(self, client: AsyncAnthropic) -> Any:
        return client.messages.with_streaming_response

    def _decoder(self, request: ModelRequest) -> StreamDecoder:
        return StreamDecoder(request, provider=self._name)

    def _open(self, resource: Any, request: ModelRequest, answer: Assembly) -> Awaitable[Chunks]:
        body = encode_request(request, provider=self._name)
        return open_chunks(resource, body, answer, FORMAT)

    def _explain(self, error: Exception) -> ModelError | None:
        return explain(error)

    async def _close_client(self, client: AsyncAnthropic) -> None:
        await client.close()


def explain(error: Exception) -> ModelError | None:
    """The lango error for an SDK error; None for other exceptions."""
    import anthropic

    if isinstance(error, anthropic.APITimeoutError):
        return ModelTimeoutError()
    if isinstance(error, anthropic.APIConnectionError):
        return ModelUnavailableError(f"The server could not be reached: {error.__cause__ or error}")
    if isinstance(error, anthropic.APIResponseValidationError):
        return BadStreamError(str(error))
    if isinstance(error, anthropic.APIStatusError):
        return _api_error(error)
    if isinstance(error, TypeError) and _NO_KEY in str(error):
        return AuthenticationError("No key for Anthropic: set ANTHROPIC_API_KEY.")
    return None


def _api_error(error: APIStatusError) -> ModelError:
    headers: Mapping[str, str] = error.response.headers
    return reported_error(error.body, error.message, error.status_code, headers)


def reported_error(
    body: object, default: str, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """The lango error for an error that the server reported, before or within its answer."""
    inner: Any = cast(JsonObject, body).get("error") if isinstance(body, dict) else None
    report = cast(JsonObject, inner) if isinstance(inner, dict) else {}
    code, message = str(report.get("type") or ""), str(report.get("message") or default)
    headers = headers or {}
    request_id = str(headers.get(REQUEST_ID) or "")
    return FAULTS.error(VendorError(message, status, (code,), headers, request_id))
