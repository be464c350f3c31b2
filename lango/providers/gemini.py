"""Google's Gemini, through the Developer API or Vertex AI."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from lango.core.messages.messages import Media, Message
from lango.core.messages.streams import FinishReason, StreamEvent, Usage
from lango.core.values import JsonObject, joined, json_object, json_text
from lango.errors import (
    AuthenticationError,
    BadRequestError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
    UnknownModelError,
)
from lango.providers.base import ModelRequest
from lango.providers.shared import media as medium
from lango.providers.shared.alternating import SideMessages, take_turns, without_instruction
from lango.providers.shared.assembly import Assembly
from lango.providers.shared.errors import FaultTable, VendorError
from lango.providers.shared.names import ToolNames
from lango.providers.shared.opaque import own
from lango.providers.shared.schemas import tool_parameters
from lango.providers.shared.sdk import SdkProvider

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import (
        Candidate,
        GenerateContentResponse,
        GenerateContentResponseUsageMetadata,
        Part,
    )

NAME: Final = "gemini"
UNSIGNED: Final = b"skip_thought_signature_validator"
"""Google's placeholder signature for a call that no Gemini model made."""
_MAJOR: Final = re.compile(r"gemini-(\d+)")
_SIGNING: Final = 3  # from this major version on, a call without a signature is refused
_SHOWN: Final = ("image/", "audio/", "video/", "application/pdf")
_NOT_SHOWN: Final = "image/gif"
_MODES: Final = {"none": "NONE", "required": "ANY"}
_BLOCKED: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
_UNSPECIFIED: Final = "FINISH_REASON_UNSPECIFIED"
_BROKEN: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
FAULTS: Final = FaultTable(
    codes={
        "UNAUTHENTICATED": AuthenticationError,
        "PERMISSION_DENIED": AuthenticationError,
        "NOT_FOUND": UnknownModelError,
        "RESOURCE_EXHAUSTED": RateLimitedError,
        "DEADLINE_EXCEEDED": ModelTimeoutError,
        "UNAVAILABLE": ModelUnavailableError,
        "INTERNAL": ModelUnavailableError,
        "INVALID_ARGUMENT": BadRequestError,
        "FAILED_PRECONDITION": BadRequestError,
    },
    too_long=("exceeds the maximum number of tokens",),
)
_UNSET: Final = "No API key was provided"
_NO_KEY: Final = ("API key not valid", "API_KEY_INVALID")


def encode_request(request: ModelRequest, *, provider: str = NAME) -> JsonObject:
    """The arguments of `models.generate_content_stream`."""
    instruction, conversation = without_instruction(request.messages)
    names = ToolNames(tool.name for tool in request.tools)
    contents = _Contents(request.model, provider, names)
    config: JsonObject = {"automatic_function_calling": {"disable": True}}
    if instruction.strip():
        config["system_instruction"] = instruction
    config |= _tools(request, names)
    if request.output_schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.output_schema
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
        "stop_sequences": list(request.stop) or None,
        "thinking_config": _thinking(request),
    }
    config |= {key: value for key, value in options.items() if value is not None}
    return {
        "model": request.model,
        "contents": [contents.encode(turn) for turn in take_turns(conversation)],
        "config": config | dict(request.extra),
    }


def _tools(request: ModelRequest, names: ToolNames) -> JsonObject:
    if not request.tools:
        return {}
    declarations = [
        {
            "name": names.wire(tool.name),
            "description": tool.description,
            "parameters_json_schema": tool_parameters(tool.parameters),
        }
        for tool in request.tools
    ]
    tools: JsonObject = {"tools": [{"function_declarations": declarations}]}
    if request.tool_choice != "auto":
        calling: JsonObject = {"mode": _MODES[request.tool_choice]}
        if request.tool_choice == "required" and request.allowed_tools:
            calling["allowed_function_names"] = [names.wire(n) for n in request.allowed_tools]
        tools["tool_config"] = {"function_calling_config": calling}
    return tools


def _thinking(request: ModelRequest) -> JsonObject | None:
    if request.thinking is None:
        return None
    if request.thinking:
        return {"include_thoughts": True}
    return {"thinking_level": "LOW"} if _signs(request.model) else {"thinking_budget": 0}


def _signs(model: str) -> bool:
    major = _MAJOR.search(model)
    return major is not None and int(major[1]) >= _SIGNING


class _Contents:
    """Encodes turns for this API."""

    def __init__(self, model: str, provider: str, names: ToolNames) -> None:
        self._model = model
        self._provider = provider
        self._names = names

    def encode(self, turn: SideMessages) -> JsonObject:
        """One content for the consecutive messages of one side."""
        if turn.side == "assistant":
            parts = [part for message in turn.messages for part in self._model_parts(message)]
            return {"role": "model", "parts": parts}
        parts = [part for message in turn.messages for part in self._user_parts(message)]
        parts.sort(key=lambda part: "function_response" not in part)  # results come first
        return {"role": "user", "parts": parts}

    def _user_parts(self, message: Message) -> Iterator[JsonObject]:
        if message.is_tool and message.tool_calls:
            for call in message.tool_calls:
                answer = {
                    "id": call.id,
                    "name": self._names.wire(call.name),
                    "response": json_object(call.output or "{}"),
                }
                yield {"function_response": answer}
        elif message.content.strip():
            yield {"text": message.content}
        yield from map(_media_part, message.media)

    def _model_parts(self, message: Message) -> list[JsonObject]:
        # A signature is valid only for the model that made it, not for the whole family.
        signed = own(message, self._provider, self._model)
        signatures = {
            position: item["signature"] for position, item in signed if "thought" not in item
        }
        parts: list[JsonObject] = [
            {"text": item["thought"], "thought": True, **_signature(item["signature"])}
            for _, item in signed
            if "thought" in item
        ]
        if message.content.strip() or 1 in signatures:
            parts.append({"text": message.content, **_signature(signatures.get(1))})
        parts += map(_media_part, message.media)
        calls: list[JsonObject] = [
            {
                "function_call": {
                    "id": call.id,
                    "name": self._names.wire(call.name),
                    "args": json_object(call.input or "{}"),
                },
                **_signature(signatures.get(2 + number)),
            }
            for number, call in enumerate(message.tool_calls)
        ]
        if calls and _signs(self._model):
            calls[0].setdefault("thought_signature", UNSIGNED)
        return parts + calls


def _signature(signature: str | None) -> JsonObject:
    return {"thought_signature": base64.b64decode(signature)} if signature else {}


def _media_part(media: Media) -> JsonObject:
    text = medium.text_of(media)
    if text is not None:
        return {"text": text}
    if media.data and media.mime_type.startswith(_SHOWN) and media.mime_type != _NOT_SHOWN:
        return {"inline_data": {"mime_type": media.mime_type, "data": media.data}}
    if media.uri:
        return {"file_data": {"mime_type": media.mime_type, "file_uri": media.uri}}
    return {"text": medium.note(media)}


class StreamDecoder:
    """Decodes one answer's chunks into events."""

    def __init__(self, request: ModelRequest, *, provider: str = NAME) -> None:
        self.answer = Assembly(provider, request)
        self._calls: list[tuple[str | None, str | None, str]] = []
        self._thoughts: list[str] = []

    def feed(self, chunk: GenerateContentResponse) -> Iterator[StreamEvent]:
        """The events in a chunk."""
        answer = self.answer
        answer.answered_by = chunk.model_version or answer.answered_by
        if not answer.request_id:
            answer.request_id = chunk.response_id or ""
        if chunk.usage_metadata is not None:
            answer.usage = _usage(chunk.usage_metadata)
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            answer.finish = "content_filter"
        for candidate in chunk.candidates or ():
            if candidate.index:  # lango asks for one answer, and reads one
                continue
            content = candidate.content
            for part in (content.parts if content else None) or ():
                yield from self._part(part)
            self._finished(candidate)

    def finish(self) -> Iterator[StreamEvent]:
        """The last events of the answer."""
        yield from self._thought()
        if self.answer.finish is not None:
            for call in self._calls:
                self.answer.call(*call)
        yield from self.answer.end()

    def _part(self, part: Part) -> Iterator[StreamEvent]:
        signature = part.thought_signature
        if part.thought:
            self._thoughts.append(part.text or "")
            yield from self.answer.add_reasoning(part.text)
            if signature:
                yield from self._thought()
                yield from self._signed(0, signature, {"thought": part.text or ""})
            return
        yield from self._thought()
        yield from self.answer.add_text(part.text)
        if part.function_call is not None:
            call = part.function_call
            if call.will_continue or call.partial_args:
                self.answer.broken("The arguments of a tool call arrive in pieces: not supported.")
            arguments: Any = call.args or {}  # a call arrives in one piece
            self._calls.append((call.id, call.name, json_text(arguments)))
        if signature:
            position = 1 + len(self._calls) if part.function_call is not None else 1
            yield from self._signed(position, signature, {})

    def _thought(self) -> Iterator[StreamEvent]:
        """Emit the collected reasoning once something else follows."""
        if self._thoughts:
            thoughts, self._thoughts = joined(self._thoughts), []
            yield from self.answer.reason(thoughts, None)

    def _signed(self, position: int, signature: bytes, item: JsonObject) -> Iterator[StreamEvent]:
        signed_item = item | {"signature": base64.b64encode(signature).decode("ascii")}
        yield from self.answer.reason("", signed_item, position)

    def _finished(self, candidate: Candidate) -> None:
        reason = candidate.finish_reason.value if candidate.finish_reason else _UNSPECIFIED
        if reason == _UNSPECIFIED:
            return
        if reason in _BROKEN:
            self.answer.broken(f"The model's answer holds a broken tool call: {reason}")
        self.answer.finish = _finish(reason)


def _finish(reason: str) -> FinishReason:
    if reason == "STOP":
        return "stop"
    if reason == "MAX_TOKENS":
        return "length"
    return "content_filter" if reason in _BLOCKED else "other"


def _usage(usage: GenerateContentResponseUsageMetadata) -> Usage:
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + thoughts,
        cached=usage.cached_content_token_count or 0,
        reasoning=thoughts,
    )


class GeminiProvider(SdkProvider["Client", "GenerateContentResponse"]):
    """Google's Gemini."""

    family = NAME

    def _make(self) -> Client:
        from google import genai

        try:
            # No timeout is set here: its meaning depends on the installed HTTP library.
            options = genai.types.HttpOptions(base_url=self._base_url)
            return genai.Client(api_key=self._api_key, http_options=options)
        except ValueError as error:
            no_key = "There is no key: set GEMINI_API_KEY."
            raise AuthenticationError(no_key if _UNSET in str(error) else str(error)) from error

    def _resource(self, client: Client) -> Any:
        return client.aio.models

    async def embed(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, in their order."""
        contents: list[Any] = [{"parts": [{"text": text}]} for text in texts]

        async def request(client: Client) -> list[list[float]]:
            answer = await self._resource(client).embed_content(model=model, contents=contents)
            return [list(embedding.values or ()) for embedding in answer.embeddings or ()]

        return await self._requested(request)

    def _decoder(self, request: ModelRequest) -> StreamDecoder:
        return StreamDecoder(request, provider=self._name)

    def _open(
        self, resource: Any, request: ModelRequest, answer: Assembly
    ) -> Awaitable[AsyncIterator[GenerateContentResponse]]:
        del answer  # the request id arrives in the chunks
        return resource.generate_content_stream(**encode_request(request, provider=self._name))

    def _explain(self, error: Exception) -> ModelError | None:
        return explain(error)

    async def _close_client(self, client: Client) -> None:
        await client.aio.aclose()


def explain(error: Exception) -> ModelError | None:
    """The lango error for an SDK error; None for other exceptions."""
    from google.genai import errors

    return _api_error(error) if isinstance(error, errors.APIError) else None


def _api_error(error: APIError) -> ModelError:
    message = error.message or str(error)
    if any(words in message for words in _NO_KEY):
        return AuthenticationError(message, status=error.code)
    raised = cast(Any, error)
    raw_headers: Mapping[str, str] = getattr(raised.response, "headers", None) or {}
    headers = {name.lower(): value for name, value in raw_headers.items()}  # of any HTTP library
    wait = _retry_delay(raised.details)
    if wait and "retry-after" not in headers:
        headers["retry-after"] = wait
    return FAULTS.error(VendorError(message, error.code, (error.status or "",), headers))


def _retry_delay(details: Any) -> str:
    """The retry delay in seconds from an error's body: Google does not send it as a header."""
    inner: Any = (
        cast(JsonObject, details).get("error", details) if isinstance(details, dict) else {}
    )
    listed: Any = cast(JsonObject, inner).get("details") if isinstance(inner, dict) else None
    for detail in cast(list[Any], listed) if isinstance(listed, list) else []:
        delay: Any = cast(JsonObject, detail).get("retryDelay") if isinstance(detail, dict) else 0
        if isinstance(delay, str):
            return delay.removesuffix("s")
    return ""
