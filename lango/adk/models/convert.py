"""Converts ADK's contents to vendor-neutral messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.genai import types

from lango.adk.models.reasoning import reasoning_of
from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
from lango.core.messages.pairing import with_call_ids
from lango.core.values import json_text, storable_json, storable_text


def convert_messages(
    contents: Sequence[types.Content], system_instruction: object = None
) -> list[Message]:
    """The messages of a request, led by the system instruction if there is one.

    Roles derive from the parts. Each function response is a separate message. Every call has an
    id: its own, or `call_<name>`; a response without an id takes that of its call.
    """
    system = system_text(system_instruction)
    talk = [message for content in contents for message in _messages(content)]
    leading = [Message("system", system)] if system else []
    return [*leading, *with_call_ids(talk)]


def system_text(instruction: object) -> str:
    """The texts of an instruction (a text, a part, a content or a list), joined by newlines."""
    return storable_text("\n".join(filter(None, _texts(instruction))))


def _texts(instruction: Any) -> Iterator[str]:
    if isinstance(instruction, str):
        yield instruction
    elif isinstance(instruction, list | tuple):
        for part in instruction:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(part)
    elif isinstance(instruction, dict):
        kind = types.Content if "parts" in instruction else types.Part
        yield from _texts(kind.model_validate(instruction))
    elif isinstance(instruction, types.Content):
        yield from _texts(instruction.parts)
    elif isinstance(instruction, types.Part):
        yield instruction.text or ""


@dataclass(slots=True)
class _Draft:
    """The parts of a content collected since the last function response."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    media: list[Media] = field(default_factory=list[Media])
    reasoning: list[Reasoning] = field(default_factory=list[Reasoning])

    def message(self, content_role: str | None) -> Iterator[Message]:
        """The message, unless it is empty."""
        if not (self.texts or self.calls or self.media or self.reasoning):
            return
        of_model = self.calls or content_role == "model"
        yield Message(
            "assistant" if of_model else "user",
            "\n".join(self.texts),
            tuple(self.calls),
            media=tuple(self.media),
            reasoning=tuple(self.reasoning),
        )


def _messages(content: types.Content) -> Iterator[Message]:
    draft = _Draft()
    for part in content.parts or ():
        if part.function_response is None:
            _add(draft, part)
            continue
        yield from draft.message(content.role)
        draft = _Draft()
        yield _result(part.function_response)
    yield from draft.message(content.role)


def _add(draft: _Draft, part: types.Part) -> None:
    call = part.function_call
    if call is not None:
        arguments = json_text(storable_json(call.args or {}))
        draft.calls.append(ToolCall(call.id or "", call.name or "", input=arguments))
    elif part.thought:
        draft.reasoning.append(reasoning_of(part))
    else:
        draft.texts += map(storable_text, filter(None, _words(part)))
        draft.media += _media([part])


def _words(part: types.Part) -> Iterator[str]:
    """The text of a part; executed code and its output become text for other models."""
    yield part.text or ""
    if part.executable_code is not None:
        yield f"```\n{part.executable_code.code or ''}\n```"
    if part.code_execution_result is not None:
        yield f"```\n{part.code_execution_result.output or ''}\n```"


def _result(response: types.FunctionResponse) -> Message:
    output = json_text(storable_json(response.response))
    call = ToolCall(response.id or "", response.name or "", output=output)
    return Message("tool", output, (call,), media=tuple(_media(response.parts or ())))


def _media(parts: Iterable[types.Part | types.FunctionResponsePart]) -> Iterator[Media]:
    for part in parts:
        blob, file = part.inline_data, part.file_data
        if blob is not None and blob.data:
            mime_type = blob.mime_type or "application/octet-stream"
            yield Media(mime_type, data=blob.data, name=blob.display_name or "")
        if file is not None and file.file_uri:
            mime_type = file.mime_type or "application/octet-stream"
            yield Media(mime_type, uri=file.file_uri, name=file.display_name or "")
