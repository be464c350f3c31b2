"""Encodes the parts of a content for the store: texts and calls in columns, the rest as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.adk.events.event import Event
from google.genai import types

from lango.core.context.tokens import binary_tokens, text_weight
from lango.core.values import JsonObject, json_text
from lango.store.files.rows import EVENT_DATA
from lango.store.sessions.entries import Blob

MAX_INLINE: Final = 8 * 1024
"""Bytes of inline data that a row may hold; more is moved to the artifacts' tables."""
MOVED: Final = "moved"
"""The key that replaces moved bytes of inline data; its value is their name in those tables."""

_BINARY: Final = {"inline_data", "file_data", "thought_signature"}


@dataclass(slots=True)
class EncodedParts:
    """The encoded parts of a content."""

    texts: list[str]
    calls: list[str]
    layout: list[JsonObject]
    blobs: list[Blob]
    responses: tuple[str, ...] = ()  # the ids of the calls it answers
    plain: bool = True  # the layout adds nothing to the columns
    weight: int = 0
    tokens: int = 0


def is_contentful(content: types.Content | None) -> bool:
    """Whether a content is a message: an empty text, or no part at all, is none."""
    if content is None:
        return False
    return any(
        part.text
        or any(v is not None for k, v in part.__dict__.items() if k not in ("text", "thought"))
        for part in content.parts or ()
    )


def encode_parts(event: Event) -> EncodedParts:
    """Encode an event's parts into columns and a layout."""
    encoded = EncodedParts([], [], [], [])
    for part in (event.content and event.content.parts) or ():
        field_names = [name for name, value in part.__dict__.items() if value is not None]
        if field_names == ["text"] and part.text:
            if encoded.layout:
                encoded.plain = False
            _add_text(encoded, part.text)
            encoded.layout.append({"text": len(part.text)})
        else:
            _add_part(encoded, event, part, field_names)
    if encoded.responses and any("function_response" not in item for item in encoded.layout):
        encoded.plain = False  # a tool row's columns hold only its answers
    return encoded


def _add_text(encoded: EncodedParts, text: str) -> None:
    encoded.texts.append(text)
    encoded.weight += text_weight(text)


def _add_part(
    encoded: EncodedParts, event: Event, part: types.Part, field_names: list[str]
) -> None:
    """Add any part but plain text: what columns hold leaves a placeholder, the rest is JSON."""
    item: JsonObject = {}
    others = [
        name for name in field_names if name not in ("text", "function_call", "function_response")
    ]
    if others:
        _add_others(encoded, event, part, item, set(others))
    if part.text is not None:
        if part.thought:
            item["text"] = part.text
            encoded.weight += text_weight(part.text)
        else:
            _add_text(encoded, part.text)
            item["text"] = len(part.text)
    if part.function_call is not None:
        item["function_call"] = _add_call(encoded, part.function_call)
    if part.function_response is not None:
        item["function_response"] = _add_response(encoded, event, part.function_response)
    simple = item in ({"function_call": {}}, {"function_response": {}})
    encoded.plain = encoded.plain and simple
    encoded.layout.append(item)


def _add_others(
    encoded: EncodedParts, event: Event, part: types.Part, item: JsonObject, names: set[str]
) -> None:
    blob = part.inline_data
    moved = blob is not None and len(blob.data or b"") > MAX_INLINE
    include: Any = {name: True for name in names}
    if moved:
        include["inline_data"] = {"mime_type", "display_name"}
    item |= part.model_dump(mode="json", exclude_none=True, include=include, warnings=False)
    encoded.weight += text_weight(json_text({k: v for k, v in item.items() if k not in _BINARY}))
    if blob is not None:
        encoded.tokens += binary_tokens(blob.mime_type, blob.data)
        if moved:
            item.setdefault("inline_data", {})[MOVED] = _move(encoded, event, blob)
    if part.file_data is not None:
        encoded.tokens += binary_tokens(part.file_data.mime_type, None)


def _move(
    encoded: EncodedParts, event: Event, blob: types.Blob | types.FunctionResponseBlob
) -> str:
    name = f"{event.id}/{len(encoded.blobs)}"
    encoded.blobs.append(Blob(name, EVENT_DATA, blob.mime_type, blob.data or b"", {}))
    return name


def _add_call(encoded: EncodedParts, call: types.FunctionCall) -> JsonObject:
    """Add the call to `tool_calls`; return the fields that have no place there."""
    head = _call_head(encoded, call.id, call.name)
    if call.args is None:
        encoded.calls.append(head + "}")
    else:
        arguments = json_text(call.args)
        encoded.weight += text_weight(arguments)
        encoded.calls.append(f'{head},"input":{arguments}}}')
    if call.partial_args is None and call.will_continue is None:
        return {}
    return call.model_dump(
        mode="json", exclude_none=True, exclude={"id", "name", "args"}, warnings=False
    )


def _add_response(
    encoded: EncodedParts, event: Event, response: types.FunctionResponse
) -> JsonObject:
    """Add the response to `tool_calls`; return the fields that have no place there."""
    encoded.responses += (response.id or "",)
    head = _call_head(encoded, response.id, response.name)
    output = "null" if response.response is None else json_text(response.response)
    encoded.weight += text_weight(output)
    encoded.calls.append(f'{head},"output":{output}}}')
    if response.parts is None and response.scheduling is None and response.will_continue is None:
        return {}
    columns: Any = {"id", "name", "response", "parts"}
    extra = response.model_dump(mode="json", exclude_none=True, exclude=columns, warnings=False)
    if response.parts is not None:
        extra["parts"] = [_response_part(encoded, event, part) for part in response.parts]
    return extra


def _response_part(
    encoded: EncodedParts, event: Event, part: types.FunctionResponsePart
) -> JsonObject:
    blob = part.inline_data
    if blob is None or len(blob.data or b"") <= MAX_INLINE:
        item = part.model_dump(mode="json", exclude_none=True, warnings=False)
    else:
        item = part.model_dump(
            mode="json", exclude_none=True, exclude={"inline_data": {"data"}}, warnings=False
        )
        item.setdefault("inline_data", {})[MOVED] = _move(encoded, event, blob)
    if blob is not None:
        encoded.tokens += binary_tokens(blob.mime_type, blob.data)
    return item


def _call_head(encoded: EncodedParts, call_id: str | None, name: str | None) -> str:
    encoded.weight += text_weight(name or "")
    return f'{{"id":{json_text(call_id)},"name":{json_text(name)}'
