"""OpenAI's Chat Completions API, which many other model servers implement too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from lango.core.messages.messages import Media, Message
from lango.core.messages.streams import FinishReason, StreamEvent, Usage
from lango.core.values import JsonObject, joined, json_text
from lango.providers.base import ModelRequest, ToolSpec
from lango.providers.policy.timeouts import Timeouts
from lango.providers.shared import media as medium
from lango.providers.shared.assembly import Assembly, OpenCall, problem_of_arguments
from lango.providers.shared.chunks import (
    field_count,
    field_key,
    field_label,
    field_object,
    field_objects,
    field_text,
)
from lango.providers.shared.names import (
    CHAT_IDS,
    NINE_LETTER_IDS,
    ApiCallIds,
    ToolNames,
    arguments_text,
)
from lango.providers.shared.opaque import own
from lango.providers.shared.openai_sdk import OPENAI_KEY, OpenAIProvider
from lango.providers.shared.schemas import closed, in_words, is_strict, tool_parameters

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAME: Final = "openai-chat"
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_THOUGHTS: Final = ("reasoning_content", "reasoning")
_KEPT: Final = "reasoning_details"
_CALL_KEPT: Final = "extra_content"
_STREAMED_DETAILS: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The kinds of reasoning details that are streamed in pieces, and the field of the piece."""
_UNANSWERED: Final = "(I did not answer.)"
_EXTENSIONS: Final = frozenset({*_THOUGHTS, _KEPT})  # of other servers, in a delta
_FINISH: Final[Mapping[object, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "eos": "stop",  # Together
    "eos_token": "stop",  # Text Generation Inference, as is the next
    "stop_sequence": "stop",
    "model_length": "length",  # Mistral
    "end_turn": "stop",  # Anthropic's words, which some gateways pass on
    "tool_use": "tool_calls",
    "max_tokens": "length",
}
_BROKEN: Final = frozenset({"error", "insufficient_system_resource", "abort"})


@dataclass(frozen=True, slots=True)
class Quirks:
    """How a server differs from OpenAI's."""

    max_tokens: str = "max_tokens"  # the name of that parameter
    ask_for_usage: bool = True
    json_schema: bool = True  # else only "any JSON", and the schema goes into an instruction
    nine_letter_ids: bool = False
    answer_after_tool: bool = False  # only an assistant message may follow a tool message
    thoughts_back: str = ""  # the field in which it wants its reasoning back
    thinking: Mapping[bool, JsonObject] = field(default_factory=dict[bool, JsonObject])

    @property
    def call_ids(self) -> ApiCallIds:
        """The call ids that it accepts."""
        return NINE_LETTER_IDS if self.nine_letter_ids else CHAT_IDS


OPENAI: Final = Quirks(
    max_tokens="max_completion_tokens",
    thinking={True: {"reasoning_effort": "medium"}, False: {"reasoning_effort": "low"}},
)


def encode_request(
    request: ModelRequest, *, provider: str = NAME, quirks: Quirks = OPENAI
) -> JsonObject:
    """The arguments of `chat.completions.create`."""
    names = ToolNames(tool.name for tool in request.tools)
    body: JsonObject = {
        "model": request.model,
        "messages": list(_Messages(provider, quirks, names).encode(request)),
        "stream": True,
    }
    if quirks.ask_for_usage:
        body["stream_options"] = {"include_usage": True}
    body |= _tools(request, names)
    if request.output_schema is not None:
        body["response_format"] = _format(request.output_schema, quirks)
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        quirks.max_tokens: request.max_tokens,
        "stop": list(request.stop) or None,
    }
    body |= {key: value for key, value in options.items() if value is not None}
    if request.thinking is not None:
        body |= quirks.thinking.get(request.thinking, {})
    extra = dict(request.extra)
    if "extra_body" in body and "extra_body" in extra:
        extra["extra_body"] = body["extra_body"] | extra["extra_body"]
    return body | extra


def _tools(request: ModelRequest, names: ToolNames) -> JsonObject:
    tools: Sequence[ToolSpec] = request.tools
    choice: Any = request.tool_choice
    if choice == "required" and request.allowed_tools:
        # Servers differ in how to choose among some tools; all accept a shorter list.
        tools = [tool for tool in tools if tool.name in request.allowed_tools]
        if len(tools) == 1:
            choice = {"type": "function", "function": {"name": names.wire(tools[0].name)}}
    if not tools:
        return {}
    declared = [
        {
            "type": "function",
            "function": {
                "name": names.wire(tool.name),
                "description": tool.description,
                "parameters": tool_parameters(tool.parameters),
            },
        }
        for tool in tools
    ]
    return {"tools": declared} | ({} if choice == "auto" else {"tool_choice": choice})


def _format(schema: JsonObject, quirks: Quirks) -> JsonObject:
    if not quirks.json_schema:
        return {"type": "json_object"}
    shut = closed(schema)
    strict = is_strict(shut)
    named_schema = {"name": "answer", "schema": shut if strict else schema, "strict": strict}
    return {"type": "json_schema", "json_schema": named_schema}


class _Messages:
    """Encodes messages for this API."""

    def __init__(self, provider: str, quirks: Quirks, names: ToolNames) -> None:
        self._provider = provider
        self._quirks = quirks
        self._names = names

    def encode(self, request: ModelRequest) -> Iterator[JsonObject]:
        """The entries of each message; an empty one has none."""
        previous = ""
        for entry in self._entries(request):
            role = entry["role"]
            if self._quirks.answer_after_tool and previous == "tool" and role in ("user", "system"):
                yield {"role": "assistant", "content": _UNANSWERED}
            yield entry
            previous = role

    def _entries(self, request: ModelRequest) -> Iterator[JsonObject]:
        if request.output_schema is not None and not self._quirks.json_schema:
            yield {"role": "system", "content": in_words(request.output_schema)}
        media: list[Media] = []
        for message in request.messages:
            if message.is_tool and message.tool_calls:
                yield from self._results(message)
                media += message.media
                continue
            yield from self._shown(media)
            media = []
            yield from self._assistant(message) if message.is_assistant else self._user(message)
        yield from self._shown(media)

    def _results(self, message: Message) -> Iterator[JsonObject]:
        for call in message.tool_calls:
            call_id = self._quirks.call_ids(call.id)
            yield {"role": "tool", "tool_call_id": call_id, "content": call.output or "{}"}

    def _shown(self, media: Sequence[Media]) -> Iterator[JsonObject]:
        """Media that tools returned, as a user message: here a tool can return only text."""
        if not media:
            return
        if self._quirks.answer_after_tool:
            yield {"role": "assistant", "content": "I need to see what the tool returned."}
        yield {"role": "user", "content": [_part(file) for file in media]}

    def _user(self, message: Message) -> Iterator[JsonObject]:
        role = "system" if message.role == "system" else "user"
        parts = [_part(media) for media in message.media]
        if parts:
            text = [{"type": "text", "text": message.content}] if message.content else []
            yield {"role": role, "content": [*text, *parts]}
        elif message.content:
            yield {"role": role, "content": message.content}

    def _assistant(self, message: Message) -> Iterator[JsonObject]:
        text = "\n".join(filter(None, (message.content, *map(medium.note, message.media))))
        calls: list[JsonObject] = [
            {
                "id": self._quirks.call_ids(call.id),
                "type": "function",
                "function": {
                    "name": self._names.wire(call.name),
                    "arguments": arguments_text(call.input),
                },
            }
            for call in message.tool_calls
        ]
        if not text and not calls:
            return
        entry: JsonObject = {"role": "assistant", "content": text or None}
        if calls:
            entry["tool_calls"] = calls
        self._put_back(message, entry, calls)
        yield entry

    def _put_back(self, message: Message, entry: JsonObject, calls: list[JsonObject]) -> None:
        """Put the server's earlier reasoning where the server wants it back."""
        back = self._quirks.thoughts_back
        if back and calls:
            entry[back] = ""  # calls without it are refused
        for position, item in own(message, self._provider):
            if _CALL_KEPT in item:
                if 2 <= position < 2 + len(calls):
                    calls[position - 2][_CALL_KEPT] = item[_CALL_KEPT]
            elif _KEPT in item:
                entry.setdefault(_KEPT, []).extend(item[_KEPT])
            elif back:
                entry[back] = entry.get(back, "") + str(item.get("thoughts", ""))


def _part(media: Media) -> JsonObject:
    address = medium.url(media)
    text = medium.text_of(media)
    if text is not None:
        return {"type": "text", "text": text or "(an empty file)"}
    if medium.kind(media) == "image" and address:
        return {"type": "image_url", "image_url": {"url": address}}
    if media.mime_type in _AUDIO and media.data:
        sound = {"data": medium.base64_text(media), "format": _AUDIO[media.mime_type]}
        return {"type": "input_audio", "input_audio": sound}
    if media.mime_type == "application/pdf" and media.data:
        file = {"filename": medium.file_name(media), "file_data": address}
        return {"type": "file", "file": file}
    return {"type": "text", "text": medium.note(media)}


class StreamDecoder:
    """Decodes one answer's chunks into events."""

    def __init__(self, request: ModelRequest, *, provider: str = NAME) -> None:
        self.answer = Assembly(provider, request)
        self._calls: list[OpenCall] = []
        self._by_index: dict[int, OpenCall] = {}
        self._thoughts: list[str] = []
        self._details: list[Any] = []
        self._has_deltas = False

    def feed(self, chunk: JsonObject) -> Iterator[StreamEvent]:
        """The events in a chunk."""
        answer = self.answer
        answer.answered_by = field_label(chunk.get("model")) or answer.answered_by
        if chunk.get("usage"):
            answer.usage = _usage(field_object(chunk["usage"]))
        for choice in field_objects(chunk.get("choices")):
            if _index(choice.get("index")):  # lango asks for one answer, and reads one
                continue
            if choice.get("usage"):  # Moonshot
                answer.usage = _usage(field_object(choice["usage"]))
            delta = self._delta(choice)
            content = delta.get("content")
            if isinstance(content, list):
                yield from self._parts(field_objects(content))
            else:
                yield from answer.add_text(field_text(content))
            yield from answer.add_text(field_text(delta.get("refusal")))
            if not _EXTENSIONS.isdisjoint(delta):
                yield from self._think(delta)
            for call in field_objects(delta.get("tool_calls")):
                self._call(call)
            if choice.get("finish_reason"):  # before the end some servers send ""
                self._finished(field_key(choice["finish_reason"]))

    def finish(self) -> Iterator[StreamEvent]:
        """The last events of the answer."""
        if self._thoughts or self._details:
            thoughts = joined(self._thoughts)
            details = _whole_details(self._details)
            item: JsonObject = {_KEPT: details} if details else {"thoughts": thoughts}
            yield from self.answer.reason(thoughts, item, position=0)
        if self.answer.finish is not None:
            for call in self._calls:
                is_whole = self.answer.call(call.id, call.name, joined(call.arguments))
                if call.extra and is_whole:
                    yield from self.answer.reason("", call.extra)
        yield from self.answer.end()

    def _delta(self, choice: JsonObject) -> JsonObject:
        """The delta of a choice; servers that do not stream send the whole message instead.

        Others send both: then the message repeats the deltas.
        """
        if choice.get("delta") is not None:
            self._has_deltas = True
            return field_object(choice["delta"])
        return {} if self._has_deltas else field_object(choice.get("message"))

    def _parts(self, parts: Sequence[JsonObject]) -> Iterator[StreamEvent]:
        """Content in parts, as Mistral's reasoning models send it."""
        for part in parts:
            thinking = part.get("thinking")
            pieces = field_objects(thinking) if isinstance(thinking, list) else [{"text": thinking}]
            for piece in pieces:
                yield from self._thought(field_text(piece.get("text")))
            yield from self.answer.add_text(field_text(part.get("text")))
            yield from self.answer.add_text(field_text(part.get("refusal")))

    def _thought(self, text: str) -> Sequence[StreamEvent]:
        if text:
            self._thoughts.append(text)
        return self.answer.add_reasoning(text)

    def _think(self, extra: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for name in _THOUGHTS:
            text = extra.get(name)
            if isinstance(text, str) and text:
                yield from self._thought(text)
                break  # some servers send the same text under both names
        details = extra.get(_KEPT)
        if isinstance(details, list):
            self._details += details

    def _call(self, delta: JsonObject) -> None:
        """Add a piece of a call.

        If a server numbers all calls 0, or none, ids separate them; without ids, a second name and
        other arguments after complete ones.
        """
        function = field_object(delta.get("function"))
        name, call_id = field_text(function.get("name")), field_text(delta.get("id"))
        arguments, index = _arguments(function.get("arguments")), _index(delta.get("index"))
        call = self._incomplete(call_id) if index is None else self._by_index.get(index)
        if call is None and index is None and self._calls and not name:
            call = self._calls[-1]
        if call is None or (name and _is_another(call, call_id, name, arguments)):
            call = OpenCall()
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.append(arguments)
        if extra := delta.get(_CALL_KEPT):
            call.extra[_CALL_KEPT] = extra

    def _incomplete(self, call_id: str) -> OpenCall | None:
        """The call of this id whose arguments are not complete yet."""
        calls = (call for call in self._calls if call_id and call.id == call_id)
        return next((call for call in calls if not _has_arguments(call)), None)

    def _finished(self, reason: object) -> None:
        if reason in _BROKEN:
            self.answer.broken(f"The server gave up in the middle of its answer: {reason}")
        self.answer.finish = _FINISH.get(reason, "other")


def _is_another(call: OpenCall, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece with a name begins another call than this one of the same index."""
    if call_id or call.id:
        return bool(call_id and call.id and call_id != call.id)
    is_repeated = name == call.name and arguments == joined(call.arguments)
    return bool(arguments.strip()) and not is_repeated and _has_arguments(call)


def _has_arguments(call: OpenCall) -> bool:
    """Whether the arguments are complete; most pieces show without parsing that they are not."""
    last = next((piece for piece in reversed(call.arguments) if piece.strip()), "")
    return last.rstrip().endswith("}") and not problem_of_arguments(joined(call.arguments))


def _index(value: object) -> int | None:
    """The number of a choice or a call; some servers send it as text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) else None


def _arguments(value: Any) -> str:
    """The arguments in a piece of a call; some servers send them as an object."""
    return json_text(value) if isinstance(value, dict) else field_text(value)


def _whole_details(details: Sequence[Any]) -> list[Any]:
    """Reasoning details with the pieces of each text put together: a signature is of all of it."""
    whole: list[Any] = []
    texts: list[tuple[JsonObject, str, list[str]]] = []
    unfinished: dict[tuple[object, str], tuple[JsonObject, list[str]]] = {}
    for detail in details:
        piece = cast(JsonObject, detail) if isinstance(detail, dict) else {}
        kind, index = str(piece.get("type")), piece.get("index")
        field_name, key = _STREAMED_DETAILS.get(kind), (kind, str(index))
        if field_name is None:
            whole.append(detail)
            continue
        text, pieces = unfinished.get(key) or ({}, [])
        if not text or (index is None and text is not whole[-1]):
            text, pieces = cast(JsonObject, {}), list[str]()
            whole.append(text)
            texts.append((text, field_name, pieces))
            unfinished[key] = text, pieces
        text |= {name: value for name, value in piece.items() if text.get(name) is None}
        pieces.append(str(piece.get(field_name) or ""))
        if piece.get("signature"):
            del unfinished[key]
    for text, field_name, pieces in texts:
        if any(pieces):
            text[field_name] = joined(pieces)
    return whole


def _usage(usage: JsonObject) -> Usage:
    prompt = field_object(usage.get("prompt_tokens_details"))
    completion = field_object(usage.get("completion_tokens_details"))
    input_tokens = field_count(usage.get("prompt_tokens"))
    output = field_count(usage.get("completion_tokens"))
    reasoning = field_count(completion.get("reasoning_tokens"))
    if field_count(usage.get("total_tokens")) == input_tokens + output + reasoning:
        output += reasoning  # xAI does not count it in; for OpenAI the total is smaller
    cached = (prompt.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"))  # DeepSeek
    return Usage(
        input=input_tokens,
        output=output,
        cached=max(map(field_count, (*cached, usage.get("cached_tokens")))),  # Moonshot
        reasoning=reasoning,
        written=field_count(prompt.get("cache_write_tokens")),
    )


class OpenAIChatProvider(OpenAIProvider):
    """Chat Completions of OpenAI, or of any compatible server."""

    family = NAME

    def __init__(
        self,
        *,
        name: str = "",
        api_key: str | None = None,
        key_name: str = OPENAI_KEY,
        base_url: str | None = None,
        quirks: Quirks = OPENAI,
        timeouts: Timeouts | None = None,
        client: AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(
            name=name, api_key=api_key, base_url=base_url, timeouts=timeouts, client=client
        )
        self.key_name = key_name
        self._quirks = quirks

    def _resource(self, client: AsyncOpenAI) -> Any:
        return client.chat.completions.with_streaming_response

    def _decoder(self, request: ModelRequest) -> StreamDecoder:
        return StreamDecoder(request, provider=self._name)

    def _encode(self, request: ModelRequest) -> JsonObject:
        return encode_request(request, provider=self._name, quirks=self._quirks)
