"""A client's message in ADK's form: text, other parts, and responses to calls that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from pydantic import ValidationError

from lango.adk.durable.journal import open_waits
from lango.adk.tools.approvals import CONFIRMATION, QUESTIONS, History
from lango.core.messages.file_types import TypeCheck, declared_type
from lango.core.turns.events import Answer
from lango.core.values import JsonObject, json_text
from lango.errors import (
    BodyTooLargeError,
    CallNotFoundError,
    MediaTypeError,
    TurnConflictError,
    UnsupportedRequestError,
)

MAX_PARTS: Final = 1_000
"""Parts in a request: each is validated and dumped on the event loop."""
_MAX_PROBLEMS: Final = 20
_EMPTY: Final = "newMessage has no content: give it at least one part with a text, data or a file."

_MIXED: Final = (
    "newMessage has responses to calls that wait, and other parts. Send the responses alone: they "
    "continue an invocation, and other parts begin one."
)


class FileLimits(Protocol):
    """The limits of files that clients send."""

    @property
    def types(self) -> Sequence[str]:
        """The accepted media types."""
        ...

    @property
    def max_bytes(self) -> int:
        """The bytes of one file."""
        ...


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """The message of a request."""

    text: str
    parts: tuple[JsonObject, ...]  # all but responses; empty if the text alone is the message
    responses: tuple[types.FunctionResponse, ...]
    size: int  # bytes of its data


@dataclass(frozen=True, slots=True)
class ClientAnswers:
    """The answers in a message, and the invocation that waits for them."""

    invocation_id: str
    answers: tuple[Answer, ...]
    is_result: bool  # the result of one long-running call


def read_message(content: JsonObject, files: FileLimits) -> ClientMessage:
    """The message of a `newMessage`; UnsupportedRequestError if it cannot be submitted.

    MediaTypeError or BodyTooLargeError for data that is not within the limits of files.
    """
    parts = _content(content).parts or []
    if any(part.function_call is not None for part in parts):
        raise UnsupportedRequestError("newMessage has a functionCall: only an agent calls tools.")
    size = sum(checked_size(part, files) for part in parts)
    responses = tuple(part.function_response for part in parts if part.function_response)
    own_parts = [part for part in parts if part.function_response is None and _says(part)]
    if not (responses or own_parts):
        raise UnsupportedRequestError(_EMPTY)
    text = "\n".join(part.text for part in own_parts if part.text and not part.thought)
    is_plain = len(own_parts) == 1 and _dumped(own_parts[0]).keys() == {"text"} and not responses
    parts_json = () if is_plain else tuple(_dumped(part) for part in own_parts)
    return ClientMessage(text, parts_json, responses, size)


def check_content(content: JsonObject) -> JsonObject:
    """Return the JSON of a content; ValueError if it has another form."""
    _content(content)
    return content


def _content(content: JsonObject) -> types.Content:
    if count_parts(content) > MAX_PARTS:
        raise ValueError(f"parts: at most {MAX_PARTS} are allowed")
    try:
        return types.Content.model_validate_json(json_text(content))
    except ValidationError as error:
        raise ValueError(problems_of(error)) from None


def count_parts(content: Any) -> int:
    """The parts in the JSON of a content that is not validated, with those of its responses."""
    parts = _items(content, "parts")
    return len(parts) + sum(
        len(_items(part[name], "parts"))
        for part in parts
        if isinstance(part, dict)
        for name in ("functionResponse", "function_response")
        if name in part
    )


def _items(data: Any, name: str) -> list[Any]:
    items = cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
    return cast("list[Any]", items) if isinstance(items, list) else []


def problems_of(error: ValidationError) -> str:
    """What is wrong with JSON, without its values."""
    details = error.errors(include_input=False, include_url=False, include_context=False)
    problems = [
        f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
        for detail in details[:_MAX_PROBLEMS]
    ]
    return "; ".join(problems)


def checked_size(part: types.Part, files: FileLimits) -> int:
    """The bytes of the data in a part, which are checked as an uploaded file's are.

    MediaTypeError for a type that clients may not upload, BodyTooLargeError for too many bytes.
    """
    responses = part.function_response.parts if part.function_response else None
    blobs = [part.inline_data, *(response.inline_data for response in responses or ())]
    return sum(_checked_blob(blob, files) for blob in blobs if blob is not None)


def _checked_blob(blob: types.Blob | types.FunctionResponseBlob, files: FileLimits) -> int:
    declared, data = declared_type(blob.mime_type or ""), blob.data or b""
    if declared not in files.types:
        raise MediaTypeError(f"inlineData takes the types {', '.join(files.types)}.")
    if len(data) > files.max_bytes:
        raise BodyTooLargeError(f"A file has {files.max_bytes} bytes at most here.")
    check = TypeCheck(declared)
    check.see(data)
    check.see(b"", last=True)
    return len(data)


def _says(part: types.Part) -> bool:
    return bool(part.text) or bool(_dumped(part).keys() - {"text", "thought"})


def _dumped(part: types.Part) -> JsonObject:
    return part.model_dump(mode="json", exclude_none=True)


def read_answers(message: ClientMessage, history: History) -> ClientAnswers | None:
    """The answers of a message to calls that wait in a session; None if it only says something.

    A message that also says something may have responses to calls that do not wait, such as those
    of a client that cancels a call when its user continues: they are left out. Alone, they raise
    CallNotFoundError, or TurnConflictError for a call that was answered.
    """
    waits, calls = open_waits(history), _asked(history)
    answered = [
        response for response in message.responses if response.id in waits and response.id in calls
    ]
    if message.parts:
        if answered:
            raise UnsupportedRequestError(_MIXED)
        return None
    # The result of a call may be delivered again.
    answered = answered or [response for response in message.responses if response.id in calls]
    if not answered:
        raise CallNotFoundError
    (invocation, *others) = dict.fromkeys(calls[response.id or ""][0] for response in answered)
    if others:
        raise TurnConflictError("Answer the calls of one invocation at a time.")
    names = [calls[response.id or ""][1] for response in answered]
    return ClientAnswers(
        invocation,
        tuple(_answer(response, name) for response, name in zip(answered, names, strict=True)),
        is_result=len(answered) == 1 and names[0] not in QUESTIONS,
    )


def _asked(history: History) -> dict[str, tuple[str, str]]:
    """The invocation and the name of each call that waits or has waited for a client."""
    return {
        call.id or "": (event.invocation_id, call.name or "")
        for event in history
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ())
    }


def _answer(response: types.FunctionResponse, name: str) -> Answer:
    call, payload = response.id or "", response.response or {}
    if name != CONFIRMATION:
        return Answer(call, approved=True, payload=payload)
    try:
        confirmation: Any = ToolConfirmation.from_response_dict(payload)
    except (ValueError, TypeError):
        raise UnsupportedRequestError(
            'The response to a confirmation is {"confirmed": true} or {"confirmed": false}, with a '
            "`payload` if the tool asks for one."
        ) from None
    return Answer(call, confirmation.confirmed, confirmation.payload)
