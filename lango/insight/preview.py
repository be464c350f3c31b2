"""Predicts the history that a session's next model call would get, from its newest call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from lango.core.context.budget import MARGIN, Calibration, fit, request_tokens
from lango.core.context.model_calls import ModelCall
from lango.core.messages.messages import Message
from lango.errors import ContextTooLongError
from lango.insight.context import (
    TEXT_ROOM,
    ContextCut,
    ContextPreview,
    StoredSummary,
    StoredTalk,
    WhyNotSent,
    cut_of,
    message_sections,
    newest_of,
)

_NEXT: Final = Message("user")  # placeholder for the user's next message


@dataclass(frozen=True, slots=True)
class PreviewBasis:
    """What earlier calls imply for the next one."""

    call: ModelCall | None = None
    room: int | None = None  # tokens for messages; None: no limit known
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def why(self) -> WhyNotSent:
        """The limit that applies: recorded only if the call left something out."""
        return "window" if self.call is not None and self.call.why == "window" else "budget"


def basis(calls: Sequence[ModelCall], sent_talk: Sequence[StoredTalk]) -> PreviewBasis:
    """The basis of the next call after these (newest last), of which the newest sent `sent_talk`.

    The calibration is learned from the usage reports, as in a process that has made all the calls.
    """
    if not calls:
        return PreviewBasis()
    newest = calls[-1]
    before, last_seq = Calibration(), 0
    for call in calls[:-1]:
        if _model(call) == _model(newest) and call.attempt.usage is not None:
            before, last_seq = _after(before, call, ()), call.last_seq or 0
    counted = [
        message for stored in sent_talk if stored.number <= last_seq for message in stored.messages
    ]
    before = Calibration(before.ratio, frozenset(map(hash, counted)))
    talk = [message for stored in sent_talk for message in stored.messages]
    after = before if newest.attempt.usage is None else _after(before, newest, talk)
    return PreviewBasis(newest, _room(newest, talk, before, after), after)


def _model(call: ModelCall) -> tuple[str, str]:
    return call.attempt.provider, call.attempt.model


def _after(calibration: Calibration, call: ModelCall, talk: Sequence[Message]) -> Calibration:
    usage = call.attempt.usage
    return calibration.after(talk, estimated=call.estimated, reported=usage.input if usage else 0)


def _room(
    call: ModelCall, talk: Sequence[Message], before: Calibration, after: Calibration
) -> int | None:
    """The room of the next call; a call without limits records its own size as the budget."""
    is_cut = call.left_out > 0 or bool(call.shortened)
    if call.budget == 0 or (not is_cut and call.budget == sum(map(before.tokens, talk))):
        return None
    is_first_report = before.ratio is None and after.ratio is not None
    if is_first_report and call.why != "window":
        return math.floor(call.budget * (1 - MARGIN))
    return call.budget


def preview(
    talk: Sequence[StoredTalk],
    preview_basis: PreviewBasis,
    not_loaded: Sequence[ContextCut] = (),
    text_room: int | None = TEXT_ROOM,
    summary: StoredSummary | None = None,
) -> ContextPreview:
    """The part of the talk that the next call would get, after the summary of what came before."""
    messages = [message for stored in talk for message in stored.messages]
    before = [summary.message] if summary else []
    next_message = [_NEXT] if _waits_for_a_user(messages) else []
    try:
        start = len(before) + (len(messages) if next_message else _open_turn(talk))
        fitted = fit(
            [*before, *messages, *next_message],
            preview_basis.room,
            preview_basis.calibration,
            lambda _: start,
            lambda _: len(before),
        )
    except ContextTooLongError as error:
        return ContextPreview(preview_basis.room, 0, (), tuple(not_loaded), str(error))
    has_summary = summary is not None and summary.message in fitted.messages[:1]
    sent_count = len(fitted.messages) - len(next_message) - has_summary
    sent = newest_of(talk, sent_count)
    cut = talk[: len(talk) - len(sent)]
    turn = preview_basis.call.turn if preview_basis.call and not next_message else ""
    return ContextPreview(
        budget=preview_basis.room,
        tokens=sum(
            map(request_tokens, fitted.messages[: len(fitted.messages) - len(next_message)])
        ),
        sections=(
            *([summary.section(text_room)] if summary and has_summary else []),
            *message_sections(sent, text_room, turn=turn, shortened=fitted.shortened),
        ),
        cut=(*not_loaded, *([cut_of(cut, preview_basis.why)] if cut else [])),
    )


def _open_turn(talk: Sequence[StoredTalk]) -> int:
    """The index of the first message of the turn that the user's last message belongs to."""
    users = [stored.turn for stored in talk if stored.role == "user"]
    before = takewhile(lambda stored: (stored.role, stored.turn) != ("user", users[-1]), talk)
    return sum(len(stored.messages) for stored in before) if users else 0


def _waits_for_a_user(messages: Sequence[Message]) -> bool:
    """Whether the last turn has ended; if not, the next call belongs to that turn."""
    return not messages or (messages[-1].is_assistant and not messages[-1].tool_calls)
