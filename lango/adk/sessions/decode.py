"""Converts stored messages to ADK events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types
from pydantic_core import from_json

from lango.adk.sessions.encode import CONTENT_ROLES
from lango.adk.sessions.fast_model import build, fast_model
from lango.adk.sessions.parts import MOVED
from lango.core.messages.authors import author_of
from lango.core.messages.messages import ASSISTANT_ROLES, CONTROL, TOOL_ROLES, Message, ToolCall
from lango.core.values import JsonObject, json_object, json_text, json_value
from lango.store.sessions.entries import StoredMessage

Blobs = Mapping[str, bytes]
NO_BLOBS: Final[Blobs] = {}

_AUTH: Final = "requested_auth_configs"
_EVENT: Final = fast_model(Event)
_ACTIONS: Final = fast_model(EventActions)
_NODE_INFO: Final = fast_model(NodeInfo)
_PART: Final = fast_model(types.Part)
_CALL: Final = fast_model(types.FunctionCall)
_RESPONSE: Final = fast_model(types.FunctionResponse)
_COMPACTION: Final = '"compaction"'
_EVENT_FIELDS: Final = {"id", "timestamp", "invocation_id", "author", "content"}

# Created about once per row, hence the stamps.
_text_part: Final = _PART.factory("text")
_call_part: Final = _PART.factory("function_call")
_response_part: Final = _PART.factory("function_response")
_contents: Final = {
    role: fast_model(types.Content).factory("parts", role=CONTENT_ROLES[kind])
    for kind, roles in {"user": {"user"}, "assistant": ASSISTANT_ROLES, "tool": TOOL_ROLES}.items()
    for role in roles
}


def compaction_of(row: StoredMessage) -> EventCompaction | None:
    """The summary that a row holds, if it is one of ADK's compaction."""
    if row.role != CONTROL or not row.event or _COMPACTION not in row.event:
        return None
    compaction = json_object(row.event).get("actions", {}).get("compaction")
    return EventCompaction.model_validate(compaction) if compaction else None


def scope_of(row: StoredMessage) -> str | None:
    """The task that a row belongs to."""
    return json_object(row.event).get("isolation_scope") if row.event else None


class EventsAdapter:
    """A history as ADK events, including one written by an older system."""

    def __init__(
        self,
        messages: Iterable[Message | StoredMessage],
        root_agent_name: str = "",
        blobs: Blobs = NO_BLOBS,
    ) -> None:
        self._messages = [
            message if isinstance(message, StoredMessage) else _as_stored(message)
            for message in messages
        ]
        self._root_agent_name = root_agent_name
        self._blobs = blobs

    def all(self) -> list[Event]:
        """Every event, in order."""
        events: list[Event] = []
        open_calls: list[JsonObject] = []  # of the last assistant message, for legacy answers
        caller = ""
        for row in self._messages:
            _, _, _, role, author, _, tool_calls, _, _, event, _ = row
            author = author or self._author(row, caller)
            calls: list[JsonObject] = json_value(tool_calls) if tool_calls else []
            if role in TOOL_ROLES and event is None:
                calls, open_calls = _with_outputs(row, calls, open_calls)
            elif role in ASSISTANT_ROLES:
                open_calls, caller = calls, author
            events.append(event_of(row, author, calls, self._blobs))
        return events

    def _author(self, row: StoredMessage, caller: str) -> str:
        """The author of a row that names none; a tool message takes that of its call."""
        if row.role in TOOL_ROLES and caller:
            return caller
        return author_of(row.role, row.author, self._root_agent_name)


def _as_stored(message: Message) -> StoredMessage:
    """A bare message as a row."""
    calls = [_stored_call(call, is_tool=message.is_tool) for call in message.tool_calls]
    return StoredMessage(
        seq=0,
        event_id="",
        invocation_id="",
        role=message.role,
        author=message.author,
        content=""
        if message.is_tool and any("output" in call for call in calls)
        else message.content,
        tool_calls=json_text(calls) if calls else None,
        tokens=0,
        timestamp=0.0,
        event=None,
        changes=None,
    )


def _stored_call(call: ToolCall, *, is_tool: bool) -> JsonObject:
    stored: JsonObject = {"id": call.id, "name": call.name}
    if call.input:
        stored["input"] = json_object(call.input)
    if is_tool and call.output:
        stored["output"] = json_object(call.output)
    return stored


def _with_outputs(
    row: StoredMessage, calls: list[JsonObject], open_calls: list[JsonObject]
) -> tuple[list[JsonObject], list[JsonObject]]:
    """A tool row's answers; without metadata, it answers the next open call.

    Returns them with the calls that remain open after this row.
    """
    if not calls and open_calls:
        open_call, *remaining = open_calls
        return [
            {
                "id": open_call.get("id"),
                "name": open_call.get("name"),
                "output": json_object(row.content),
            }
        ], remaining
    return [
        call if "output" in call else call | {"output": json_object(row.content)} for call in calls
    ], open_calls


def event_of(
    row: StoredMessage, author: str, calls: list[JsonObject], blobs: Blobs = NO_BLOBS
) -> Event:
    """One row as an event."""
    _, event_id, invocation_id, role, _, text, _, _, timestamp, event, changes = row
    values = _EVENT.defaults.copy()  # all fields with a factory are set below
    values["timestamp"] = timestamp
    values["invocation_id"] = invocation_id
    values["author"] = author
    values["id"] = event_id or Event.new_id()
    extras: JsonObject = from_json(event) if event else {}
    if role != CONTROL:
        parts = _parts(role, text, calls, extras, blobs)
        values["content"] = _content(role, parts, extras)
    fields_set = _EVENT_FIELDS.copy()
    if extras or changes:
        _fill(values, extras, changes)
        fields_set.update(extras)
    else:
        values["actions"] = _ACTIONS.fresh()
        values["node_info"] = _NODE_INFO.fresh()
    return _EVENT.assemble(values, fields_set)


def _fill(values: dict[str, Any], extras: JsonObject, changes: str | None) -> None:
    """Set the fields that the columns do not hold."""
    actions = extras.pop("actions", None)
    if changes is not None:
        actions = (actions or {}) | json_value(changes)
    values["actions"] = _ACTIONS.fresh() if actions is None else _actions(actions)
    if "node_info" not in extras:
        values["node_info"] = _NODE_INFO.fresh()
    _EVENT.fill(values, extras)


def _actions(data: JsonObject) -> EventActions:
    """Validate auth configs with ADK's own validator; revive all else."""
    configs = data.pop(_AUTH, None)
    actions = _ACTIONS.revive(data, skip_validation=True)
    if configs is not None:
        actions.requested_auth_configs = EventActions.model_validate(
            {_AUTH: configs}
        ).requested_auth_configs
    return actions


def _content(role: str, parts: list[types.Part], extras: JsonObject) -> types.Content:
    if "role" in extras:
        return build(types.Content, parts=parts, role=extras.pop("role"))
    make = _contents.get(role) or _contents["assistant"]
    return make(parts)


def _parts(
    role: str, text: str, calls: list[JsonObject], extras: JsonObject, blobs: Blobs
) -> list[types.Part]:
    """The parts in the row's layout; without one, a text and then the calls."""
    if "parts" in extras:
        return _laid_out(extras.pop("parts"), text, iter(calls), blobs)
    if not calls:
        return [_text_part(text)]
    if role in TOOL_ROLES:  # their content, if any, repeats the outputs
        return [_response_part(_response(call, {})) for call in calls]
    before = [_text_part(text)] if text else []
    return before + [_call_part(_call(call, {})) for call in calls]


def _call(call: JsonObject, extra: JsonObject) -> types.FunctionCall:
    arguments = call.get("input")
    if isinstance(arguments, str):  # an older system kept JSON as text
        arguments = json_object(arguments)
    columns = {"id": call.get("id"), "name": call.get("name"), "args": arguments}
    return _CALL.revive(extra | columns)


def _response(call: JsonObject, extra: JsonObject) -> types.FunctionResponse:
    output = call.get("output")
    if isinstance(output, str):
        output = json_object(output)
    columns = {"id": call.get("id"), "name": call.get("name"), "response": output}
    return _RESPONSE.revive(extra | columns)


def _laid_out(
    layout: Sequence[JsonObject], content: str, calls: Iterator[JsonObject], blobs: Blobs
) -> list[types.Part]:
    """The parts in their order: texts cut from the content, calls taken from the column."""
    parts: list[types.Part] = []
    offset = 0
    for item in layout:
        fields = {k: v for k, v in item.items() if k not in ("function_call", "function_response")}
        length = item.get("text")
        if isinstance(length, int):
            fields["text"] = content[offset : offset + length]
            offset += length + 1
        _restore_bytes(fields.get("inline_data"), blobs)
        values = _PART.revive(fields).__dict__ | _calls_of(item, calls, blobs)
        parts.append(_PART.assemble(values, set(item)))
    return parts


def _calls_of(item: JsonObject, calls: Iterator[JsonObject], blobs: Blobs) -> dict[str, Any]:
    """The call and the response of one part, in that order."""
    fields: dict[str, Any] = {}
    if "function_call" in item:
        fields["function_call"] = _call(next(calls), item["function_call"])
    if "function_response" in item:
        extra = item["function_response"]
        for part in extra.get("parts") or ():
            _restore_bytes(part.get("inline_data"), blobs)
        fields["function_response"] = _response(next(calls), extra)
    return fields


def _restore_bytes(inline_data: JsonObject | None, blobs: Blobs) -> None:
    """Put back bytes that were moved out of the row."""
    if inline_data is not None and MOVED in inline_data:
        inline_data["data"] = blobs.get(inline_data.pop(MOVED), b"")


def moved_names(rows: Iterable[StoredMessage]) -> list[str]:
    """The names of all bytes that were moved out of these rows."""
    marker = f'"{MOVED}":'
    names: list[str] = []
    for event in [row.event for row in rows if row.event is not None and marker in row.event]:
        for item in json_value(event).get("parts", ()):
            holders: list[JsonObject] = [
                item,
                *(item.get("function_response", {}).get("parts") or ()),
            ]
            blobs: list[JsonObject] = [holder.get("inline_data") or {} for holder in holders]
            names += [blob[MOVED] for blob in blobs if MOVED in blob]
    return names


def message_of(row: StoredMessage) -> Message:
    """A row as a message of the conversation; a tool message's content is its outputs."""
    calls = [_tool_call(call) for call in (json_value(row.tool_calls) if row.tool_calls else ())]
    content = row.content
    if row.role in TOOL_ROLES:
        content = "\n".join(filter(None, [content, *(call.output for call in calls)]))
    return Message(row.role, content, tuple(calls), row.author)


def _tool_call(call: JsonObject) -> ToolCall:
    texts = {name: _json_or_text(call[name]) for name in ("input", "output") if name in call}
    return ToolCall(call.get("id") or "", call.get("name") or "", **texts)


def _json_or_text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
