"""Converts ADK's events of one run to turn events: each text once, each call with its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.tools.transfer_to_agent_tool import transfer_to_agent
from google.genai import types

from lango.adk.credentials.kinds import credential_request_of
from lango.adk.models.direct_deltas import DirectDeltas
from lango.adk.models.usage import usage_of
from lango.adk.sessions.normalise import with_outputs_moved
from lango.adk.tools.approvals import QUESTIONS, approval_of, closed_waits
from lango.adk.tools.feedback import take_cause
from lango.core.messages.code_parts import code_parts
from lango.core.messages.streams import Usage
from lango.core.turns.events import (
    AgentChanged,
    ApprovalRequired,
    CredentialRequired,
    MessageCompleted,
    MessageDelta,
    MessagePart,
    MessageReset,
    ReasoningDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from lango.core.values import json_text, storable_json
from lango.errors import ModelStoppedError

ABORTED: Final = "INVOCATION_ABORTED"
"""The error code of the events with which ADK closes an aborted run."""
NOTHING_TO_SAY: Final = "MODEL_RETURNED_NO_CONTENT"
"""The error code of an empty answer that ended normally, as after a final tool result."""
LATER_TRY: Final = "lango_try"
"""In an event's custom metadata: which try of its node has ended, if not the first."""
_TRANSFER: Final = transfer_to_agent.__name__


@dataclass(slots=True)
class _Draft:
    """A message of which only deltas have arrived."""

    newest: Event
    texts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(slots=True)
class TurnReader:
    """Reads the events of one run, and then knows how the run ended."""

    waits: set[str] = field(default_factory=set[str])
    """Calls that wait for an answer."""
    usage: Usage = field(default_factory=Usage)
    aborted: bool = False
    passed_on_by: str = ""
    """The agent that asked for the newest transfer."""
    direct_deltas: DirectDeltas | None = None
    _stopped: Event | None = None
    _next_agent: str | None = None
    _drafts: dict[str, _Draft] = field(default_factory=dict[str, _Draft])
    _thought: set[str] = field(default_factory=set[str])
    _tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of called tools by the calls' ids."""

    def read(self, event: Event) -> Iterator[TurnEvent]:
        """The turn events of an ADK event."""
        if event.author == self._next_agent:
            self._next_agent = None
            yield AgentChanged(event.author)
        if event.partial:
            yield from self._deltas(event)
            return
        self._note(event)
        if event.author != "user":
            yield from self._message(event)
        yield from self._calls(event)
        yield from self._results(event)

    def _deltas(self, event: Event) -> Iterator[TurnEvent]:
        for part in _parts(event):
            if part.text:
                yield self._delta(event, part.text, is_thought=bool(part.thought))
        if self.direct_deltas is not None:
            self.direct_deltas.bind(event, partial(self._delta, event))

    def _delta(self, event: Event, text: str, *, is_thought: bool) -> TurnEvent:
        has_begun = event.id in (self._thought if is_thought else self._drafts)
        author = None if has_begun else event.author
        if is_thought:
            self._thought.add(event.id)
            return ReasoningDelta(event.id, text, author)
        draft = self._drafts.setdefault(event.id, _Draft(event))
        draft.newest = event
        draft.texts.append(text)
        return MessageDelta(event.id, text, author)

    def _note(self, event: Event) -> None:
        """Record what matters at the end of the run."""
        self.usage += usage_of(event.usage_metadata)
        self.aborted = self.aborted or event.error_code == ABORTED
        says = bool(_parts(event))
        if says or event.error_code:
            self._stopped = None if says else event
        elif self._stopped is not None and _ends_a_try(event, self._stopped):
            self._stopped = None
        if event.actions.transfer_to_agent:
            self.passed_on_by = event.author
            self._next_agent = event.actions.transfer_to_agent
        self.waits |= event.long_running_tool_ids or set()
        self.waits -= closed_waits(event)

    def _message(self, event: Event) -> Iterator[TurnEvent]:
        """The whole message, which replaces its deltas; thoughts only if none were streamed."""
        text = _text(part for part in _parts(event) if not part.thought) or _output(event)
        thoughts = _text(part for part in _parts(event) if part.thought)
        message = self._streamed_as(event)
        if thoughts and message not in self._thought:
            yield ReasoningDelta(message, thoughts, event.author)
        draft = self._drafts.pop(message, None)
        stored_as = event.id if message != event.id else None
        if text:
            yield MessageCompleted(message, event.author, text, stored_as)
        yield from _code_parts(event, message, stored_as)
        if draft is not None and not text:
            yield MessageReset(message)

    def _streamed_as(self, event: Event) -> str:
        """The id of the deltas that a whole answer replaces.

        ADK gives the answer of an agent with a code executor another id than its deltas. An agent
        gives one answer at a time on a branch, so the newest deltas there belong to the answer.
        """
        is_answer = any(part.function_response is None for part in _parts(event))
        if event.id in self._drafts or not is_answer:
            return event.id
        author_and_branch = (event.author, event.branch)
        drafts = [
            message
            for message, draft in self._drafts.items()
            if (draft.newest.author, draft.newest.branch) == author_and_branch
        ]
        return drafts[-1] if drafts else event.id

    def _calls(self, event: Event) -> Iterator[TurnEvent]:
        for call in event.get_function_calls():
            approval = approval_of(call, event.author)
            request = credential_request_of(event, call, self._tools)
            self._tools[call.id or ""] = call.name or ""
            if approval is not None:
                yield ApprovalRequired(approval)
            elif request is not None:
                yield CredentialRequired(request)
            elif call.name not in QUESTIONS and call.name != _TRANSFER:
                yield ToolStarted(call.id or "", call.name or "", call.args or {})

    def _results(self, event: Event) -> Iterator[TurnEvent]:
        """Results, except the placeholder of a call that waits for a person.

        A user's message holds the results of long-running calls, and a person's decisions.
        """
        asks = {
            *event.actions.requested_tool_confirmations,
            *event.actions.requested_auth_configs,
        }
        # Large outputs as the session stores them: the log has no second copy.
        for response in with_outputs_moved(event).get_function_responses():
            is_tool = response.name != _TRANSFER and response.name not in QUESTIONS
            if is_tool and response.id not in asks:
                yield _finished(response)

    def unfinished(self) -> list[Event]:
        """The interrupted messages, as events that a session can store."""
        return [
            draft.newest.model_copy(
                update={
                    "content": types.ModelContent(draft.text),
                    "partial": None,
                    "interrupted": True,
                }
            )
            for draft in self._drafts.values()
        ]

    @property
    def unfinished_text(self) -> str:
        """The partial text of interrupted messages."""
        return "\n\n".join(draft.text for draft in self._drafts.values())

    def stopped(self) -> ModelStoppedError | None:
        """The error of a run that ended without an answer, though nothing was raised."""
        event = self._stopped
        if event is None or event.error_code in (ABORTED, NOTHING_TO_SAY):
            return None
        reason = event.error_message or "The model stopped without an answer."
        return ModelStoppedError(f"{reason} ({event.error_code})")


def _code_parts(event: Event, message: str, stored_as: str | None) -> Iterator[MessagePart]:
    parts = _parts(event)
    if all(part.executable_code is None and part.code_execution_result is None for part in parts):
        return
    include = {"executable_code", "code_execution_result"}
    dumped = [part.model_dump(mode="json", exclude_none=True, include=include) for part in parts]
    for part in code_parts(dumped):
        yield MessagePart(message, event.author, **asdict(part), event=stored_as)


def _finished(response: types.FunctionResponse) -> ToolFinished:
    result: dict[str, Any] = storable_json(response.response or {})  # ADK keeps a tool's own value
    call, name = response.id or "", response.name or ""
    if result.get("error"):
        error_id: Any = result.get("error_id")
        known_by = error_id if isinstance(error_id, str) else None
        cause = take_cause(known_by) if known_by else None
        return ToolFinished(call, name, error=str(result["error"]), error_id=known_by, cause=cause)
    return ToolFinished(call, name, result, truncated=result.get("truncated") is True)


def _output(event: Event) -> str:
    """The output of a whole Workflow that ends with a function, not with an agent's text."""
    is_workflow_output = any("/" not in path for path in event.node_info.output_for or ())
    if _parts(event) or event.output is None or not is_workflow_output:
        return ""
    return event.output if isinstance(event.output, str) else json_text(storable_json(event.output))


def _ends_a_try(event: Event, failed: Event) -> bool:
    """Whether a Workflow's failed node has succeeded in a later try."""
    path = failed.node_info.path
    gives = event.output is not None or event.actions.route is not None
    later = LATER_TRY in (event.custom_metadata or {})
    return bool(path) and event.node_info.path == path and (gives or later)


def _parts(event: Event) -> list[types.Part]:
    return (event.content.parts if event.content else None) or []


def _text(parts: Iterable[types.Part]) -> str:
    return "".join(part.text or "" for part in parts)
