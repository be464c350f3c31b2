"""The caller of a model: ADK passes a model its request, but not the session.

Plugins note the caller before the call in a context variable, so parallel agents have their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.tool_context import ToolContext

from lango.adk.credentials.kinds import CREDENTIAL
from lango.adk.models.direct_deltas import DirectDeltas
from lango.adk.sessions.session import link_of
from lango.core.context.model_calls import CallKind, CutReason, ModelCall
from lango.core.ids import new_id
from lango.store.db.database import Database
from lango.store.sessions.entries import StoredMessage
from lango.store.turns.holding import Holding
from lango.store.turns.ledger import key_of_call
from lango.store.turns.usage import NOTHING_SPENT, EarlierUsage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestCut:
    """How a request was cut to fit, before its model got it."""

    budget: int
    left_out: int = 0
    shortened: tuple[str, ...] = ()
    why: CutReason = ""


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """The running claimed turn, and the usage of its earlier attempts."""

    holding: Holding
    earlier_usage: EarlierUsage = NOTHING_SPENT


@dataclass(eq=False, slots=True)
class ModelCaller:
    """The session and turn that a model call belongs to, and the subscribers to its records."""

    session: tuple[str, str, str]  # app, user, session id
    turn: str = ""
    tenant: str | None = None  # None: the session is not in lango's store
    agent: str = ""
    session_pk: int | None = None  # in `database`
    database: Database | None = None
    rows: Sequence[StoredMessage] = ()  # what the session had loaded when the call began
    claimed: ClaimedTurn | None = None
    kind: CallKind = "answer"
    call: str = field(default_factory=lambda: new_id("mc"))
    request: LlmRequest | None = None
    events: Sequence[Event] = ()  # of the calling agent's session, which may be an inner one
    cut: RequestCut | None = None
    started: float = field(default_factory=time.time)
    first_byte: float | None = None
    starts: list[Start] = field(default_factory=list["Start"])
    reports: list[Report] = field(default_factory=list["Report"])
    records: list[ModelCall] = field(default_factory=list[ModelCall])
    entered: set[int] = field(default_factory=set[int])  # the attempts that have a row already
    direct_deltas: DirectDeltas | None = None  # if its deltas need not pass through ADK

    @property
    def turn_number(self) -> int | None:
        """The number of the claimed turn in its session."""
        return self.claimed.holding.claim.turn.number if self.claimed else None

    async def start(self, record: ModelCall) -> None:
        """Notify the subscribers that a request is about to go out."""
        for subscriber in self.starts:
            await subscriber(self, record)

    def report(self, record: ModelCall) -> None:
        """Pass a record to the subscribers; a failing subscriber never fails the turn."""
        self.records.append(record)
        for subscriber in self.reports:
            try:
                subscriber(self, record)
            except Exception:
                logger.exception("A model call was not recorded; the turn continues.")


Report = Callable[[ModelCaller, ModelCall], None]
"""Receives the records of a call; synchronous, so it must be fast."""
Start = Callable[[ModelCaller, ModelCall], Awaitable[None]]
"""Receives the record of an attempt before its request goes out; the request waits for it."""

claimed_turn: ContextVar[ClaimedTurn | None] = ContextVar("lango_claimed_turn", default=None)
"""Set while a claimed turn runs, for all its agents, including those that its tools run."""
current_caller: ContextVar[ModelCaller | None] = ContextVar("lango_caller", default=None)
_outer_caller: ContextVar[ModelCaller | None] = ContextVar("lango_outer_caller", default=None)


def note_caller(context: ReadonlyContext, llm_request: LlmRequest) -> ModelCaller:
    """The caller of the next model call, the same object for all plugins."""
    current = current_caller.get()
    if current is not None and current.request is llm_request:
        return current
    caller = _caller_of(context)
    caller.request, caller.events = llm_request, context.session.events
    current_caller.set(caller)
    return caller


def note_tool(context: ReadonlyContext) -> str:
    """Note that a tool runs: agents that it runs belong to this turn, whose id is returned.

    ADK runs every tool in its own context, so the note ends with the tool.
    """
    caller = _caller_of(context)
    _outer_caller.set(caller)
    return caller.turn


def call_key(context: ToolContext) -> str:
    """The ledger's key of a tool call; a run after a person's answer has another key."""
    call_id = context.function_call_id or ""
    return key_of_call(
        call_id,
        confirmed=context.tool_confirmation is not None,
        credentials=_credentials_since(context.session.events, call_id),
    )


def _credentials_since(events: Sequence[Event], call_id: str) -> int:
    """How many messages of the user have given credentials since a call was made."""
    answers = 0
    for event in reversed(events):
        if any(call.id == call_id for call in event.get_function_calls()):
            return answers
        if event.author == "user":
            responses = event.get_function_responses()
            answers += any(response.name == CREDENTIAL for response in responses)
    return 0


def is_inner(invocation_id: str) -> bool:
    """Whether an invocation is of an agent that another invocation's tool runs."""
    outer_caller = _outer_caller.get()
    return outer_caller is not None and outer_caller.turn != invocation_id


def is_in_tool() -> bool:
    """Whether the running code belongs to a tool call."""
    return _outer_caller.get() is not None


def _caller_of(context: ReadonlyContext) -> ModelCaller:
    outer_caller = _outer_caller.get()
    if outer_caller is not None and outer_caller.turn != context.invocation_id:
        return ModelCaller(
            outer_caller.session,
            outer_caller.turn,
            outer_caller.tenant,
            context.agent_name,
            outer_caller.session_pk,
            outer_caller.database,
            claimed=outer_caller.claimed,
        )
    session = context.session
    link = link_of(session)
    return ModelCaller(
        (session.app_name, session.user_id, session.id),
        context.invocation_id,
        link.ref.key.tenant if link.ref else None,
        context.agent_name,
        link.ref.pk if link.ref else None,
        link.database,
        tuple(link.rows),
        claimed_turn.get(),
    )
