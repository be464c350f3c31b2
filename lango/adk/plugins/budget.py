"""Applies the history budget before every model call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from google.adk.agents.callback_context import CallbackContext
from google.adk.events.event import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.caller import RequestCut, note_caller
from lango.adk.models.convert import convert_messages, system_text
from lango.adk.models.open_turn import turn_start
from lango.adk.models.summaries import leading_summaries
from lango.adk.plugins.models import declared_text, instruction_of, model_of, named
from lango.adk.plugins.stopping import StopResponse
from lango.core.context.budget import Calibration, Limits, fit
from lango.core.context.tokens import estimate_tokens
from lango.core.messages.messages import Message
from lango.core.values import json_object
from lango.errors import ContextTooLongError


class BudgetPlugin(BasePlugin):
    """Drops and shortens messages over the budget, for any model.

    `token_budget` limits the messages of each request: 0 means the default of 32,000, None as
    much as `context_window` holds. A `ModelAdapter` does this itself and is left alone.
    """

    def __init__(
        self,
        token_budget: int | None = 0,
        context_window: int | None = None,
        name: str = "lango_budget",
    ) -> None:
        super().__init__(name)
        self.token_budget = token_budget
        self.context_window = context_window

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Cut the request to fit; end the turn if that is impossible."""
        model = model_of(callback_context)
        if isinstance(model, ModelAdapter):
            return None
        limits = self._limits(llm_request.config)
        try:
            cut = cut_to_fit(llm_request, limits, callback_context.session.events)
        except ContextTooLongError as error:
            error.provider, error.model = named(model)
            return StopResponse(error)
        note_caller(callback_context, llm_request).cut = cut
        return None

    def _limits(self, config: types.GenerateContentConfig) -> Limits:
        texts = [system_text(instruction_of(config)), declared_text(config)]
        overhead = sum(estimate_tokens(text) for text in texts if text)
        return Limits(self.token_budget, self.context_window, overhead, config.max_output_tokens)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The parts of a content that make one message."""

    content: int
    role: str | None
    parts: tuple[types.Part, ...]

    def as_content(self) -> types.Content:
        return types.Content(role=self.role, parts=list(self.parts))

    def shortened(self, message: Message) -> _Piece:
        """The same piece with the message's output in place of its own."""
        (part,) = self.parts
        response = part.function_response
        if response is None:
            return self
        output = json_object(message.tool_calls[0].output)
        shorter = response.model_copy(update={"response": output})
        return _Piece(
            self.content, self.role, (part.model_copy(update={"function_response": shorter}),)
        )


def cut_to_fit(llm_request: LlmRequest, limits: Limits, events: Sequence[Event] = ()) -> RequestCut:
    """Make the contents of a request fit; contents that fit stay unchanged.

    `events` are the session's: they separate the open turn from earlier turns.
    """
    room = limits.room(Calibration())
    pieces = [
        piece
        for number, content in enumerate(llm_request.contents)
        for piece in _pieces(number, content)
        if convert_messages([piece.as_content()])  # skip parts without content
    ]
    messages = convert_messages([piece.as_content() for piece in pieces])
    fitted = fit(
        messages,
        room,
        opens=partial(turn_start, events=events),
        summarised=partial(leading_summaries, events=events),
    )
    budget = fitted.tokens if room is None else room
    if not fitted.left_out and not fitted.shortened:
        return RequestCut(budget)
    summaries = fitted.summaries
    newest = len(messages) - len(fitted.messages) + len(summaries)
    sent_pieces = [*pieces[summaries.start : summaries.stop], *pieces[newest:]]
    fitted_pairs = list(zip(sent_pieces, fitted.messages, strict=True))
    pairs = [*fitted_pairs[: len(summaries)], *_valid(fitted_pairs[len(summaries) :])]
    originals = {id(message) for message in messages}
    llm_request.contents = list(
        _contents(
            [
                piece if id(message) in originals else piece.shortened(message)
                for piece, message in pairs
            ]
        )
    )
    left_out = len(messages) - len(pairs)
    return RequestCut(budget, left_out, fitted.shortened, limits.bound(Calibration()))


def _pieces(number: int, content: types.Content) -> Iterator[_Piece]:
    """Each function response by itself, and the parts between them."""
    between: list[types.Part] = []
    for part in content.parts or ():
        if part.function_response is None:
            between.append(part)
            continue
        if between:
            yield _Piece(number, content.role, tuple(between))
        between = []
        yield _Piece(number, content.role, (part,))
    if between:
        yield _Piece(number, content.role, tuple(between))


def _valid(pairs: Sequence[tuple[_Piece, Message]]) -> list[tuple[_Piece, Message]]:
    """A history that models accept: it starts with a user's message; no result lacks its call.

    ADK's own repair has already run, and some models reject other histories.
    """
    users = (number for number, (_, message) in enumerate(pairs) if message.role == "user")
    valid: list[tuple[_Piece, Message]] = []
    call_ids: set[str] = set()
    for piece, message in pairs[next(users, 0) :]:
        ids = {call.id for call in message.tool_calls}
        if message.is_assistant:
            call_ids |= ids
        if not message.is_tool or ids <= call_ids:
            valid.append((piece, message))
    return valid


def _contents(pieces: Sequence[_Piece]) -> Iterator[types.Content]:
    """The pieces, grouped by content again."""
    for _, together in groupby(pieces, key=lambda piece: piece.content):
        group = list(together)
        parts = [part for piece in group for part in piece.parts]
        yield types.Content(role=group[0].role, parts=parts)
