"""Schemas of /v1. Fields are only ever added."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal, cast

from fastapi import Header
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from lango.core.fleet import FailedTurn, RegisteredWorker, WaitingTurn
from lango.core.ids import MAX_ID_LENGTH, check_id
from lango.core.messages.code_parts import MAX_SHOWN as MAX_PART
from lango.core.messages.code_parts import Outcome, PartKind, stored_code_parts
from lango.core.times import moment, moment_or_none
from lango.core.turns.events import CredentialKind, CredentialRequest
from lango.core.turns.positions import POSITION
from lango.core.turns.states import Busy, TurnState
from lango.core.values import json_value, storable_text
from lango.errors import InvalidIdError
from lango.store.files.uploads import StoredFile
from lango.store.memory.store import MAX_SHOWN, FoundMemory
from lango.store.sessions.entries import StoredMessage, readable_time
from lango.store.sessions.listing import Page, SessionSummary
from lango.store.turns.listing import ListedTurn
from lango.store.turns.rows import Turn

MAX_PAGE: Final = 200
MAX_TITLE: Final = 256
MAX_FILES: Final = 20
_OF_THE_USER: Final = "user:"  # how ADK marks an artifact that all sessions of a user share
_OF_NO_URL: Final = (".", "..")  # clients resolve them as relative path segments
_YEARS: Final = (1971, 9998)  # valid in every time zone


def _check_id(value: str) -> str:
    try:
        return check_id("id", value)
    except InvalidIdError:  # its message repeats the value
        raise PydanticCustomError("id", "{rule}", {"rule": InvalidIdError.__doc__}) from None


def _check_file_name(value: str) -> str:
    if value.startswith(_OF_THE_USER) or value in _OF_NO_URL:
        raise PydanticCustomError("file", "A file's name is not . or .. or begins with user:.")
    return _check_id(value)


def _check_time(value: datetime) -> datetime:
    if not _YEARS[0] <= value.year <= _YEARS[1]:
        raise PydanticCustomError("time", "The time is too far away.")
    return value


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH), AfterValidator(_check_id)]
FileName = Annotated[
    str, Field(min_length=1, max_length=MAX_ID_LENGTH), AfterValidator(_check_file_name)
]
Title = Annotated[str, Field(max_length=MAX_TITLE), AfterValidator(storable_text)]
Moment = Annotated[AwareDatetime, AfterValidator(_check_time)]
Number = Annotated[int, Field(ge=0, lt=1 << 62)]
EventId = Annotated[
    str,
    Field(
        pattern=rf"^{POSITION}$",
        description="The `id` of the last event that the client has, as it was received.",
    ),
]
IdempotencyKey = Annotated[
    Id | None,
    Header(description="The same request under the same key is done once, and answered again."),
]


class RequestBody(BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class NewSession(RequestBody):
    """A session to create."""

    app: Id
    alias: Id | None = Field(
        default=None, description="An id of your own, unique for the user and app."
    )
    title: Title = ""


class SessionChange(RequestBody):
    """A change of a session."""

    title: Title


class TurnRequest(RequestBody):
    """A message for the agent."""

    message: str = Field(min_length=1)
    files: list[FileName] = Field(
        default_factory=list[str],
        max_length=MAX_FILES,
        description="Files of the session that the model is to see with it.",
    )
    busy: Busy = Field(
        default="enqueue", description="What to do while the session has other turns."
    )
    run_at: Moment | None = Field(default=None, description="Not before this time.")


class NewApproval(RequestBody):
    """A person's decision about a tool call that waits for approval."""

    call: Id = Field(
        description=(
            "`approval` or `call` of the event `approval.required`, or `credential` of "
            "`credential.required`."
        )
    )
    approved: bool
    payload: Any = Field(
        default=None,
        description="What the tool asked for beside a yes or no; for a credential, the credential.",
    )


class NewResult(RequestBody):
    """The result of a long-running tool call, which the tool itself could not return."""

    call: Id = Field(description="The call, as in `waits_for` of the turn.")
    result: Any = Field(description="An object; anything else is given to the agent as `result`.")


class AgentInfo(BaseModel):
    """An agent that sessions can be created for."""

    app: str


class AgentList(BaseModel):
    """The agents served here."""

    agents: list[AgentInfo]


class Session(BaseModel):
    """A conversation."""

    id: str
    app: str
    user: str
    alias: str
    title: str
    status: TurnState | None = Field(
        description="`running` while a turn runs, else the state of the newest; null without one."
    )
    messages: int
    tokens: int
    created: datetime
    last_activity: datetime

    @classmethod
    def of(cls, stored: SessionSummary) -> Session:
        """A session from the store."""
        return cls(
            id=stored.public_id,
            app=stored.app_name,
            user=stored.user_id,
            alias=stored.id,
            title=stored.title,
            status=stored.status,
            messages=stored.message_count,
            tokens=stored.total_tokens,
            created=moment(stored.created),
            last_activity=moment(stored.last_activity),
        )


class SessionPage(BaseModel):
    """Sessions, the last active first."""

    sessions: list[Session]
    next: str | None = Field(
        default=None, description="`cursor` of the next page; null on the last one."
    )

    @classmethod
    def of(cls, page: Page[SessionSummary]) -> SessionPage:
        """A page of the store."""
        return cls(sessions=[Session.of(session) for session in page.items], next=page.next_cursor)


class SessionMessagePart(BaseModel):
    """Code that a model ran in a message, or the output of code."""

    part: int = Field(description="Its index among the parts of the message.")
    kind: PartKind
    text: str = Field(description=f"Cut after {MAX_PART:,} characters.")
    language: str | None = Field(description="Of code, if the model names it.")
    outcome: Outcome | None = Field(description="Of output, if it is known.")
    truncated: bool


class SessionMessage(BaseModel):
    """One message of a session's history."""

    number: int
    id: str
    turn: str = Field(description="The turn of the message.")
    role: str
    author: str
    content: str
    tool_calls: list[dict[str, Any]]
    parts: list[SessionMessagePart] = Field(description="Code and its output.")
    tokens: int
    at: datetime

    @classmethod
    def of(cls, stored: StoredMessage) -> SessionMessage:
        """A row of the store."""
        calls = cast("list[dict[str, Any]]", json_value(stored.tool_calls or "[]"))
        return cls(
            number=stored.seq,
            id=stored.event_id,
            turn=stored.invocation_id,
            role=stored.role,
            author=stored.author,
            content=stored.content,
            tool_calls=calls,
            parts=[SessionMessagePart(**asdict(part)) for part in stored_code_parts(stored.event)],
            tokens=stored.tokens,
            at=moment(stored.timestamp),
        )


class MessagePage(BaseModel):
    """A page of messages, in order."""

    messages: list[SessionMessage]
    before: int | None = Field(
        default=None, description="`before` of the page of older ones, if any."
    )
    after: int | None = Field(
        default=None, description="`after` of the page of newer ones, if any yet."
    )


class File(BaseModel):
    """A file of a session."""

    name: str
    version: int = Field(description="The first is 0.")
    type: str | None = Field(description="The content type that came with it; null if none did.")
    size: int
    sha256: str
    created: datetime

    @classmethod
    def of(cls, stored: StoredFile) -> File:
        """A file of the store."""
        return cls(
            name=stored.name,
            version=stored.version,
            type=stored.mime_type,
            size=stored.size,
            sha256=stored.sha256,
            created=moment(stored.created),
        )


class FilePage(BaseModel):
    """Files by name, the newest version of each."""

    files: list[File]
    next: str | None = Field(
        default=None, description="`after` of the next page; null on the last one."
    )


class MemoryItem(BaseModel):
    """An entry of a user's memory."""

    id: str
    text: str = Field(description=f"Cut after {MAX_SHOWN:,} characters.")
    role: str = Field(description="`user` or `assistant`.")
    author: str
    session: str | None = Field(
        description="The session of the message; null if it does not exist here."
    )
    alias: str | None = Field(description="That session's alias; null for an entry of the user.")
    metadata: dict[str, Any] | None
    at: datetime

    @classmethod
    def of(cls, stored: FoundMemory) -> MemoryItem:
        """An entry of the store."""
        return cls(
            id=str(stored.pk),
            text=stored.text,
            role=stored.role,
            author=stored.author,
            session=stored.public_id,
            alias=stored.session_id or None,
            metadata=stored.metadata,
            at=readable_time(stored.timestamp),
        )


class MemoryPage(BaseModel):
    """Entries of a user's memory: the newest first, or the best matches of a query."""

    entries: list[MemoryItem]
    next: int | None = Field(
        default=None, description="`after` of the next page; null on the last one."
    )


class WorkerInfo(BaseModel):
    """A worker that is registered."""

    id: str
    state: Literal["alive", "silent"] = Field(
        description="`silent`: without a recent heartbeat; others resume its turns."
    )
    versions: dict[str, str] = Field(description="The fingerprint of each agent it has loaded.")
    started: datetime
    seen: datetime = Field(description="Its last heartbeat.")
    silence: float = Field(description="Seconds since that heartbeat, on the database's clock.")
    running: int = Field(description="Running turns of the tenant.")

    @classmethod
    def of(cls, worker: RegisteredWorker) -> WorkerInfo:
        """A worker of the store: other tenants' turns and the machine are not shown."""
        return cls(
            id=worker.id,
            state=worker.state,
            versions=dict(worker.versions),
            started=worker.started,
            seen=worker.seen,
            silence=worker.silence,
            running=worker.running,
        )


class WorkerList(BaseModel):
    """The registered workers, the oldest first."""

    workers: list[WorkerInfo]


class FailureList(BaseModel):
    """Turns that failed, the last one first."""

    failures: list[FailedTurn]
    more: bool = Field(description="Whether earlier ones were left out.")


class ApprovalList(BaseModel):
    """Turns whose calls wait for answers, the longest wait first."""

    turns: list[WaitingTurn]
    more: bool = Field(description="Whether later ones were left out.")


class DeletedUser(BaseModel):
    """The numbers of what was deleted of a user."""

    sessions: int
    memories: int = Field(description="Entries of memory.")
    artifacts: int = Field(description="Of the user; those of sessions are not counted.")
    states: int = Field(description="Keys of the user's state.")
    model_calls: int = Field(description="Records of sessions that are stored elsewhere.")
    credentials: int = Field(description="For tools.")


class TurnFile(BaseModel):
    """A file of a turn, in the version that was the newest when the turn was submitted."""

    name: str
    version: int


class TurnInfo(BaseModel):
    """The current state of a turn."""

    id: str
    session: str
    app: str
    user: str
    number: int
    message: str | None = Field(description="The user's message; null for an answer.")
    files: list[TurnFile] = Field(description="What goes with it.")
    state: TurnState
    attempts: int
    cancel_requested: bool
    answers: str | None = Field(description="The approval or call that this turn answers.")
    waits_for: list[str] = Field(
        description="The approvals that a person is asked for, and the calls without a result yet."
    )
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    trace_id: str | None = Field(
        description="Its trace, for a trace viewer; null if it was accepted without traces."
    )
    last_event: int = Field(description="The number of the newest event of its log.")
    run_at: datetime | None
    created: datetime
    started: datetime | None
    ended: datetime | None

    @classmethod
    def of(cls, turn: Turn, session: str) -> TurnInfo:
        """A turn from the store, in the session of that public id."""
        return cls(
            id=turn.id,
            session=session,
            app=turn.session.app_name,
            user=turn.session.user_id,
            number=turn.number,
            message=turn.input.get("text"),
            files=turn.input.get("files", []),
            state=turn.state,
            attempts=turn.attempts,
            cancel_requested=turn.cancel_requested,
            answers=turn.answers,
            waits_for=list(turn.waits_for),
            usage=turn.usage,
            error=turn.error,
            trace_id=turn.trace_id,
            last_event=turn.last_event,
            run_at=moment_or_none(turn.run_at),
            created=moment(turn.created),
            started=moment_or_none(turn.started),
            ended=moment_or_none(turn.ended),
        )


class RequiredCredential(BaseModel):
    """A credential that a tool call waits for, as in the event `credential.required`."""

    credential: str = Field(description="Its id, which the answer names as `call`.")
    call: str
    name: str = Field(description="The tool, or the toolset.")
    agent: str
    kind: CredentialKind
    auth_uri: str | None = Field(description="Where the user consents, for `oauth2`.")

    @classmethod
    def of(cls, request: CredentialRequest) -> RequiredCredential:
        """A request of a turn."""
        return cls(
            credential=request.id,
            call=request.call_id,
            name=request.name,
            agent=request.agent,
            kind=request.kind,
            auth_uri=request.auth_uri,
        )


class TurnDetail(TurnInfo):
    """A turn with its answer, and the credentials that it waits for."""

    credentials: list[RequiredCredential] = Field(
        description="The credentials that the turn waits for."
    )

    text: str | None = Field(
        description="The agent's final text; null unless the turn has completed."
    )


class TurnListPage(BaseModel):
    """Turns of any sessions, the newest first."""

    turns: list[TurnInfo]
    next: str | None = Field(
        default=None, description="`cursor` of the next page; null on the last one."
    )

    @classmethod
    def of(cls, page: Page[ListedTurn]) -> TurnListPage:
        """A page of the store."""
        turns = [TurnInfo.of(listed.turn, listed.session) for listed in page.items]
        return cls(turns=turns, next=page.next_cursor)


class TurnPage(BaseModel):
    """Turns of a session, the newest first."""

    turns: list[TurnInfo]
    before: int | None = Field(
        default=None, description="`before` of the page of older ones, if any."
    )
