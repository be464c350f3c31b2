"""The text of a turn, from its events: each model response once."""

from __future__ import annotations

from typing import Final

from lango.core.turns.events import (
    ENDS,
    Approval,
    ApprovalRequired,
    Cancelled,
    CredentialRequest,
    CredentialRequired,
    End,
    Failed,
    InputRequired,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    Retrying,
    ToolProgress,
    TurnEvent,
)
from lango.errors import (
    ApprovalNeededError,
    CredentialNeededError,
    ModelError,
    TurnCancelledError,
    TurnError,
)

BETWEEN: Final = "\n\n"
"""The separator between the texts of two model responses."""


class Collector:
    """Collects the text of a turn: from deltas if there are any, else from whole messages."""

    def __init__(self) -> None:
        self.end: End | None = None
        self._approvals: list[Approval] = []
        self._credentials: list[CredentialRequest] = []
        self._texts: list[str] = []
        self._drafts: dict[str, list[str]] = {}
        self._pieces: list[MessageCompleted] = []

    def take(self, event: TurnEvent) -> None:
        """Process the next event of the turn."""
        match event:
            case MessageDelta():
                self._drafts.setdefault(event.message, []).append(event.text)
            case MessageReset():
                self._drafts.pop(event.message, None)
            case MessageCompleted():
                self._complete(event)
            case ReasoningDelta() | ToolProgress():
                pass
            case _:
                self._close_pieces()
                self._note(event)

    def _complete(self, event: MessageCompleted) -> None:
        deltas = self._drafts.pop(event.message, None)
        if deltas is None:
            self._add_piece(event)
            return
        self._close_pieces()
        self._texts.append("".join(deltas))

    def _add_piece(self, event: MessageCompleted) -> None:
        """Add a message without deltas, which may be one piece of a response.

        Some models send pieces. They are consecutive and from one agent. If the whole response
        follows its pieces, it is skipped.
        """
        if self._pieces and self._pieces[-1].author != event.author:
            self._close_pieces()
        if len(self._pieces) > 1 and event.text == self._joined():
            return
        self._pieces.append(event)

    def _joined(self) -> str:
        return "".join(piece.text for piece in self._pieces)

    def _close_pieces(self) -> None:
        if self._pieces:
            self._texts.append(self._joined())
            self._pieces.clear()

    def _note(self, event: TurnEvent) -> None:
        if isinstance(event, Retrying):
            self._texts.clear()  # only the retry's text counts
        elif isinstance(event, CredentialRequired):
            self._credentials.append(event.request)
        elif isinstance(event, ApprovalRequired):
            self._approvals.append(event.approval)
        elif isinstance(event, ENDS):
            self.end = event

    @property
    def text(self) -> str:
        """The text so far, including unfinished messages."""
        drafts = ["".join(deltas) for deltas in self._drafts.values()]
        pieces = [self._joined()] if self._pieces else []
        return BETWEEN.join([*self._texts, *pieces, *drafts])

    def answer(self) -> str:
        """The text of a completed turn; otherwise raise the turn's error with the partial text.

        Text of a turn that waits for a long-running call's result is an answer, too.
        """
        error = self._error()
        if error is None:
            return self.text
        if isinstance(error, TurnError | ModelError):
            error.partial_text = self._with(error.partial_text)
        raise error

    def _error(self) -> Exception | None:
        match self.end:
            case Failed():
                return self.end.error
            case Cancelled():
                return TurnCancelledError()
            case InputRequired() if self._credentials:
                return CredentialNeededError(credentials=self._credentials)
            case InputRequired() if self._approvals or not self.text:
                return ApprovalNeededError(approvals=self._approvals)
            case _:
                return None

    def _with(self, partial: str) -> str:
        """The text so far, plus partial text that only the error holds."""
        if self.text.endswith(partial):
            return self.text
        return BETWEEN.join(filter(None, [self.text, partial]))
