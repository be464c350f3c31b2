"""The events of a turn: the same in process, in the log, and over HTTP.

A turn begins with Started and ends with one of Completed, Failed, Cancelled and InputRequired.
Fields are only ever added, and readers ignore unknown types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Final, Literal

from lango.core.causes import Cause
from lango.core.messages.code_parts import Outcome, PartKind
from lango.core.messages.streams import Usage
from lango.core.values import JsonObject, storable_json, storable_text
from lango.errors import LangoError

NO_USAGE: Final = Usage()
UNSAID: Final = (
    "Something went wrong inside the agent. Its operator finds the cause under `error_id`, in the "
    "log and with `lango turns show`."
)
"""Replaces the text of a foreign exception, which may hold text that no client should read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an approval: `call_id` is the approval's id, or its call's."""

    call_id: str
    approved: bool
    payload: Any = None  # what the tool asked for in addition to a yes or no


@dataclass(frozen=True, slots=True)
class Approval:
    """A tool call that waits for a person."""

    id: str  # unique in the session, unlike a call's id
    call_id: str
    name: str
    arguments: JsonObject
    hint: str = ""
    agent: str = ""

    def answer(self, approved: bool, payload: Any = None) -> Answer:
        """An answer to this approval."""
        return Answer(self.id, approved, payload)


CredentialKind = Literal["oauth2", "api_key", "basic", "bearer", "other"]


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """A tool call that waits for a user's credential. Nothing here is secret."""

    id: str  # unique in the session, unlike a call's id
    call_id: str
    name: str  # of the tool, or of the toolset that needs it to list its tools
    kind: CredentialKind
    auth_uri: str | None = None  # where the user consents, for oauth2
    agent: str = ""

    def answer(self, credential: Any) -> Answer:
        """An answer with a credential: see docs/how-to/tool-credentials.md for its forms."""
        return Answer(self.id, True, credential)


class Event:
    """Base class of turn events: the name of their kind, and their fields as JSON."""

    __slots__ = ()
    type: ClassVar[str]

    def data(self) -> JsonObject:
        """The fields that are not None, as storable JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        return {name: _json(value) for name, value in values.items() if value is not None}


def _json(value: Any) -> Any:
    if isinstance(value, BaseException):
        return error_data(value)
    if is_dataclass(value) and not isinstance(value, type):
        return storable_json(asdict(value))
    return storable_json(value)


def error_data(error: BaseException, error_id: str = "") -> JsonObject:
    """An error as a client may see it; operators find the cause by the error id."""
    is_lango = isinstance(error, LangoError)
    data: JsonObject = {
        "type": type(error).__name__ if is_lango else "InternalError",
        "message": storable_text(str(error)) if is_lango else UNSAID,
        "retryable": is_lango and error.retryable,
    }
    return {**data, "error_id": error_id} if error_id else data


@dataclass(frozen=True, slots=True)
class Started(Event):
    """An attempt at the turn has started."""

    type: ClassVar[str] = "started"
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class MessageDelta(Event):
    """More text of a message."""

    type: ClassVar[str] = "message.delta"
    message: str
    text: str
    author: str | None = None  # the agent, in the first of a message


@dataclass(frozen=True, slots=True)
class ReasoningDelta(Event):
    """More of the model's reasoning before a message."""

    type: ClassVar[str] = "thought.delta"
    message: str
    text: str
    author: str | None = None  # the agent, in the first of a message


@dataclass(frozen=True, slots=True)
class MessageCompleted(Event):
    """A complete message: it replaces its deltas, if there were any."""

    type: ClassVar[str] = "message.completed"
    message: str
    author: str
    text: str
    event: str | None = None  # the session event's id, if it differs from that of the deltas


@dataclass(frozen=True, slots=True)
class MessagePart(Event):
    """Code that the model ran in a message, or the output of code."""

    type: ClassVar[str] = "message.part"
    message: str
    author: str
    part: int  # its index among the parts of the session's event
    kind: PartKind
    text: str
    language: str | None = None
    outcome: Outcome | None = None
    truncated: bool = False
    event: str | None = None  # the session event's id, if it differs from that of the deltas


@dataclass(frozen=True, slots=True)
class MessageReset(Event):
    """A message that will not be completed: discard its deltas."""

    type: ClassVar[str] = "message.reset"
    message: str


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """The model has called a tool."""

    type: ClassVar[str] = "tool.started"
    call: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class ToolProgress(Event):
    """How far a running tool is. It replaces the progress before it, and no history keeps it."""

    type: ClassVar[str] = "tool.progress"
    call: str
    name: str
    current: float
    total: float | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ToolFinished(Event):
    """The tool returned a result or an error."""

    type: ClassVar[str] = "tool.finished"
    call: str
    name: str
    result: JsonObject | None = None
    error: str | None = None
    truncated: bool = False
    error_id: str | None = None  # of the error in the process's log
    cause: Cause | None = field(default=None, compare=False)  # never in `data()`

    def data(self) -> JsonObject:
        """The fields without the cause, which is not for clients."""
        return {name: value for name, value in Event.data(self).items() if name != "cause"}


@dataclass(frozen=True, slots=True)
class ApprovalRequired(Event):
    """A tool call waits for a person."""

    type: ClassVar[str] = "approval.required"
    approval: Approval

    def data(self) -> JsonObject:
        """The approval with the field names of other events, where `call` is a call's id."""
        values = storable_json(asdict(self.approval))
        return {"approval": values.pop("id"), "call": values.pop("call_id"), **values}


@dataclass(frozen=True, slots=True)
class CredentialRequired(Event):
    """A tool call waits for a user's credential."""

    type: ClassVar[str] = "credential.required"
    request: CredentialRequest

    def data(self) -> JsonObject:
        """The request with the field names of other events, where `call` is a call's id."""
        values = storable_json(asdict(self.request))
        renamed = {"credential": values.pop("id"), "call": values.pop("call_id"), **values}
        return {name: value for name, value in renamed.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AgentChanged(Event):
    """Another agent has taken over."""

    type: ClassVar[str] = "agent.changed"
    agent: str


@dataclass(frozen=True, slots=True)
class Retrying(Event):
    """The turn is retried after `after` seconds."""

    type: ClassVar[str] = "retrying"
    why: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Completed(Event):
    """The turn ended: the agent has answered."""

    type: ClassVar[str] = "completed"
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The turn ended with an error; `text` is what had arrived of an unfinished message."""

    type: ClassVar[str] = "failed"
    error: Exception
    text: str = ""
    usage: Usage = NO_USAGE
    error_id: str = ""  # of a foreign exception: the turn's id, once the turn is closed

    def data(self) -> JsonObject:
        """The fields, with the id as part of the error."""
        data = Event.data(self)
        del data["error_id"]
        return {**data, "error": error_data(self.error, self.error_id)}


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """The turn was cancelled; `text` is what had arrived of an unfinished message."""

    type: ClassVar[str] = "cancelled"
    text: str = ""
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class InputRequired(Event):
    """The run ended, the turn did not: these calls wait for an answer."""

    type: ClassVar[str] = "input_required"
    calls: tuple[str, ...]
    usage: Usage = NO_USAGE


End = Completed | Failed | Cancelled | InputRequired
GivenUp = Failed | Cancelled
"""The end of a turn that lost its worker and is not run again."""
TurnEvent = (
    Started
    | MessageDelta
    | ReasoningDelta
    | MessageCompleted
    | MessagePart
    | MessageReset
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalRequired
    | CredentialRequired
    | AgentChanged
    | Retrying
    | End
)
Publish = Callable[[TurnEvent], None]
"""Takes an event of a running turn for the turn's log; it neither waits nor raises."""
ENDS: Final = (Completed, Failed, Cancelled, InputRequired)
LEAKED_CANCELLATION: Final = (
    "The agent was cancelled from inside: a tool or a library let asyncio.CancelledError out. "
    "Catch it in the tool and raise another error."
)
"""The error of code that leaks a CancelledError although its task was not cancelled."""
KINDS: Final[dict[str, type[TurnEvent]]] = {kind.type: kind for kind in TurnEvent.__args__}
"""Every kind of event, by its type name."""
