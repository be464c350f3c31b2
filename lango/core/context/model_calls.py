"""Records of model calls, one per attempt: for usage reports, calibration and timelines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from lango.core.messages.streams import Usage

CallOutcome = Literal["completed", "failed", "cancelled", "started", "cut_off"]
"""`started`: in progress. `cut_off`: its worker died or lost the turn, and its usage is unknown.
A worker that was only frozen still records the outcome when it wakes up."""
CallKind = Literal["answer", "summary"]
"""What a call is for: an agent's next answer, or a summary of the conversation so far."""
CutReason = Literal["", "budget", "window", "refused"]
"""Why messages were left out: the token budget, the model's window, or the model refused more."""


@dataclass(frozen=True, slots=True)
class ModelAttempt:
    """One attempt at a request, as the provider's client saw it. Times are epoch seconds."""

    provider: str
    model: str
    started: float
    ended: float
    first_byte: float | None = None
    outcome: CallOutcome = "completed"
    error: str = ""  # the class of the error that ended it
    request_id: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A text that many requests share; a store keeps it once, under its hash."""

    text: str

    @property
    def hash(self) -> str:
        """SHA-256 of the text, in hex."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One attempt of a model call, with the numbers of messages sent and left out."""

    attempt: ModelAttempt
    number: int  # of the attempt, within its call, from 1
    call: str = ""  # the id that all attempts of one call share
    session: tuple[str, ...] = ()  # app, user, session id, when known
    turn: str = ""
    agent: str = ""
    budget: int = 0  # tokens the messages were allowed
    estimated: int = 0  # tokens of the whole prompt, uncalibrated
    sent: int = 0  # messages, without the system message
    left_out: int = 0  # older messages that did not fit
    shortened: tuple[str, ...] = ()  # ids of the calls whose outputs were shortened
    why: CutReason = ""
    first_seq: int | None = None  # of the oldest stored message sent; None: not known exactly
    last_seq: int | None = None  # of the newest
    price: float | None = None  # US dollars; None: unknown
    kind: CallKind = "answer"
    system: PromptPart | None = None
    tools: PromptPart | None = None
    # The primary key of the session in lango's store; None: stored elsewhere, or unknown.
    session_pk: int | None = field(default=None, compare=False)
    turn_number: int | None = field(default=None, compare=False)  # in its session; None: not queued


CallHook = Callable[[ModelCall], Awaitable[None] | None]
"""Receives the records; sync or async."""
