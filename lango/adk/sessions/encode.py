"""Encodes an ADK event for the store: readable columns, and one JSON for the rest."""

from __future__ import annotations

from typing import Any, Final

from google.adk.events.event import Event, NodeInfo
from google.adk.events.event_actions import EventActions

from lango.adk.sessions.normalise import (
    before_outputs_move,
    large_outputs,
    moving_outputs,
    output_name,
)
from lango.adk.sessions.parts import EncodedParts, encode_parts, is_contentful
from lango.adk.tools.approvals import closed_waits
from lango.core.context.tokens import text_weight, tokens_of_weight
from lango.core.messages.messages import CONTROL
from lango.core.values import JsonObject, json_text
from lango.store.files.rows import ARTIFACT
from lango.store.sessions.entries import NO_CHANGE, Blob, Entry, Rewind, StateChange

CONTENT_ROLES: Final = {"user": "user", "assistant": "model", "tool": "function"}
_COLUMNS: Final = {"id", "timestamp", "invocation_id", "author", "content", "actions"}
_WHEREABOUTS: Final = {"branch", "isolation_scope", "node_info"}
_NOWHERE: Final = NodeInfo()
_CHANGES: Final = ("state_delta", "artifact_delta")
_EMPTY_BY_DEFAULT: Final = {
    name for name, field in EventActions.model_fields.items() if field.default_factory is dict
}
_AUTH: Final = "requested_auth_configs"
_SCOPES: Final = ("app:", "user:")
_NO_PARTS: Final = EncodedParts([], [], [], [])


def entry_of(event: Event) -> tuple[Event, Entry | None]:
    """The event as ADK may keep it in memory, and its entry; None if the event is empty."""
    original = before_outputs_move(event)
    outputs = large_outputs(original)
    clean = moving_outputs(original, outputs)
    return clean, _entry(clean, _output_blobs(clean, outputs) if outputs else ())


def _output_blobs(event: Event, outputs: dict[int, str]) -> tuple[Blob, ...]:
    responses = event.get_function_responses()
    return tuple(
        Blob(
            call=responses[number].id or "",
            marker=responses[number].response,
            name=output_name(event, responses[number]),
            kind=ARTIFACT,
            mime_type="application/json",
            data=text.encode(),
            part={"inline_data": {"mime_type": "application/json"}},
        )
        for number, text in outputs.items()
    )


def _entry(event: Event, output_blobs: tuple[Blob, ...]) -> Entry | None:
    encoded = encode_parts(event) if is_contentful(event.content) else _NO_PARTS
    extras, actions = _rest(event), dumped_actions(event.actions)
    says = bool(encoded.layout or extras.keys() - _WHEREABOUTS or _marks_a_node(event))
    changes = {name: actions.pop(name) for name in _CHANGES if actions.get(name)}
    if not (says or actions or changes):
        return None
    role = _role(event, encoded)
    _complete(extras, actions, event, encoded, role)
    state_only = not (says or actions or changes.keys() - {"state_delta"})
    if changes and state_only:
        changes = changes["state_delta"]
    return Entry(
        event_id=event.id,
        invocation_id=event.invocation_id,
        author=event.author,
        role=role,
        content="\n".join(encoded.texts),
        tool_calls=f"[{','.join(encoded.calls)}]" if encoded.calls else None,
        event=json_text(extras) if extras else None,
        changes=json_text(changes) if changes else None,
        tokens=_tokens(event, encoded, role),
        timestamp=event.timestamp,
        counts=role != CONTROL,
        state=split_state(event.actions.state_delta),
        state_only=state_only,
        compaction=event.actions.compaction is not None,
        opens_calls=tuple(sorted(event.long_running_tool_ids or ())),
        answers_calls=_answered(event, encoded),
        responses=encoded.responses,
        scope=event.isolation_scope or "",
        rewind=_rewind(event),
        blobs=(*encoded.blobs, *output_blobs),
    )


def _answered(event: Event, encoded: EncodedParts) -> tuple[str, ...]:
    """The calls that the event closes: with a person's answer or an error."""
    closed = closed_waits(event) if encoded.responses else ()
    return tuple(call for call in encoded.responses if call in closed)


def _rest(event: Event) -> JsonObject:
    """The fields that no column holds."""
    names = {
        name for name, value in event.__dict__.items() if value is not None and name not in _COLUMNS
    }
    if event.node_info == _NOWHERE:
        names.discard("node_info")
    if not names:
        return {}
    return event.model_dump(mode="json", exclude_none=True, include=names, warnings=False)


def _marks_a_node(event: Event) -> bool:
    """Whether the event's place in a workflow alone shows that a node has run."""
    return "/" in event.node_info.path


def _role(event: Event, encoded: EncodedParts) -> str:
    """The role by the parts, not by `content.role`: ADK gives function responses "user"."""
    if not encoded.layout:
        return CONTROL
    if encoded.responses:
        return "tool"
    return "user" if event.author == "user" else "assistant"


def _complete(
    extras: JsonObject, actions: JsonObject, event: Event, encoded: EncodedParts, role: str
) -> None:
    """Add what the columns cannot hold: actions, an unusual role, the order of mixed parts."""
    content = event.content
    if actions:
        extras["actions"] = actions
    if not event.author:
        extras["author"] = ""  # otherwise it would read as a row of an older system
    if content is None:
        return
    if role == CONTROL:
        extras["content"] = content.model_dump(mode="json", exclude_none=True, warnings=False)
        return
    if role != "tool" and content.role != CONTENT_ROLES[role]:
        extras["role"] = content.role
    if not encoded.plain:
        extras["parts"] = encoded.layout


def dumped_actions(actions: EventActions) -> JsonObject:
    """The actions that have a value."""
    names = {
        name
        for name, value in actions.__dict__.items()
        if value is not None and (value != {} or name not in _EMPTY_BY_DEFAULT)
    }
    if not names:
        return {}
    dumped = actions.model_dump(
        mode="json", exclude_none=True, include=names - {_AUTH}, warnings=False
    )
    if _AUTH in names:  # by alias: the OpenAPI models inside are not read by field name
        dumped[_AUTH] = {
            call_id: config.model_dump(mode="json", by_alias=True)
            for call_id, config in actions.requested_auth_configs.items()
        }
    return dumped


def _tokens(event: Event, encoded: EncodedParts, role: str) -> int:
    """A control row counts 0 tokens, except for a compaction's summary, which the model sees."""
    compaction = event.actions.compaction
    if role == CONTROL and compaction is None:
        return 0
    weight = encoded.weight
    if compaction is not None:
        summary = compaction.compacted_content.parts or ()
        weight += sum(text_weight(part.text or "") for part in summary)
    return tokens_of_weight(weight) + encoded.tokens


def split_state(delta: dict[str, Any]) -> StateChange:
    """A state delta by scope, prefixes removed; `temp:` keys are not stored."""
    if not delta:
        return NO_CHANGE
    app = {key[4:]: value for key, value in delta.items() if key.startswith("app:")}
    user = {key[5:]: value for key, value in delta.items() if key.startswith("user:")}
    session = {k: v for k, v in delta.items() if not k.startswith((*_SCOPES, "temp:"))}
    return StateChange(session, user, app)


def _rewind(event: Event) -> Rewind | None:
    target = event.actions.rewind_before_invocation_id
    return Rewind(target, artifact_delta=event.actions.artifact_delta) if target else None
