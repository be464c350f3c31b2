"""One prepared model call: converted, paired, within the budget, and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from google.adk.models.llm_request import LlmRequest

from lango.adk.models.caller import ModelCaller
from lango.adk.models.convert import convert_messages
from lango.adk.models.direct_deltas import DirectDeltas
from lango.adk.models.open_turn import turn_start
from lango.adk.models.request_config import RequestConfig, options_of
from lango.adk.models.sent_rows import sent_span
from lango.adk.models.summaries import leading_summaries
from lango.core.context.budget import Calibration, FittedConversation, Limits, fit, request_tokens
from lango.core.context.calibrations import Calibrations, ModelConversation
from lango.core.context.model_calls import CutReason, ModelAttempt, ModelCall, PromptPart
from lango.core.context.tokens import estimate_tokens
from lango.core.ids import new_id
from lango.core.messages.messages import Message
from lango.core.messages.pairing import pair_calls
from lango.core.messages.streams import Usage
from lango.core.values import json_text, storable_json
from lango.errors import ContextTooLongError
from lango.providers.base import ModelRequest
from lango.providers.policy.retry import Fallback
from lango.providers.registry import price

if TYPE_CHECKING:
    from lango.telemetry.tracing.models import ModelSpan

_AGENT_LABEL: Final = "adk_agent_name"  # ADK itself sets it on every request
_SHRINK: Final = 2


@dataclass(slots=True)
class PreparedCall:
    """A request, how it was cut to fit its model, and how often it was tried."""

    provider: str
    model: str
    options: RequestConfig
    system: Message | None
    talk: list[Message]  # paired, all of it
    tools_text: str
    overhead: int  # estimated tokens of the instruction and tools
    caller: ModelCaller | None = None
    token_budget: int | None = 0
    window: int | None = None  # of the first model, and of fallbacks whose own is unknown
    calibrations: Calibrations = field(default_factory=Calibrations)
    calibration: Calibration = field(default_factory=Calibration)
    fitted: FittedConversation = field(default_factory=lambda: FittedConversation([], 0))
    id: str = field(default_factory=lambda: new_id("mc"))
    budget: int = 0
    bound: CutReason = ""
    tries: int = 0
    shrunk: bool = False
    span: ModelSpan | None = None  # while traces are on

    def direct_deltas(self, llm_request: LlmRequest) -> DirectDeltas | None:
        """The way past ADK for the answer's deltas, if the caller of this request allows it."""
        caller = self.caller
        return (
            caller.direct_deltas if caller is not None and caller.request is llm_request else None
        )

    def request(self, fallback: Fallback | None = None) -> ModelRequest:
        """The request for a model: as much as fits its window by the calibrated estimate."""
        window, self.shrunk = self.window, False
        if fallback is not None:
            self.provider, self.model = fallback.provider.name, fallback.model
            window = fallback.window or window
        self.calibration = self.calibrations.of(self._conversation)
        try:
            self._fit_window(window)
        except ContextTooLongError as error:
            error.provider, error.model = self.provider, self.model
            raise
        return self._request

    def shorter(self) -> ModelRequest | None:
        """The same at half the length, once; None if that was done or nothing can be cut."""
        return self._request if self._shrink() else None

    def _fit_window(self, window: int | None) -> None:
        """Drop and shorten what does not fit; calls and results are paired last."""
        answer = self.options.config.max_output_tokens
        limits = Limits(self.token_budget, window, self.overhead, answer)
        room = limits.room(self.calibration)
        self._fit(room)
        self.budget = self.fitted.tokens if room is None else room
        self.bound = limits.bound(self.calibration)

    def _shrink(self) -> bool:
        if self.shrunk:
            return False
        self.shrunk = True
        before = self.fitted.messages
        try:
            self._fit(self.fitted.tokens // _SHRINK)
        except ContextTooLongError:
            return False
        return self.fitted.messages != before

    def _fit(self, room: int | None) -> None:
        fitted = fit(self.talk, room, self.calibration, self._open_turn, self._summaries)
        self.fitted = replace(fitted, messages=pair_calls(fitted.messages))

    def _open_turn(self, messages: Sequence[Message]) -> int:
        return turn_start(messages, self.caller.events if self.caller else ())

    def _summaries(self, messages: Sequence[Message]) -> int:
        return leading_summaries(messages, self.caller.events if self.caller else ())

    @property
    def _request(self) -> ModelRequest:
        system = [self.system] if self.system else []
        messages = [*system, *self.fitted.messages]
        return self.options.request(self.model, messages, cut=self.fitted.left_out > 0)

    def call_ids(self) -> set[str]:
        """The call ids that the conversation already uses."""
        return {call.id for message in self.talk for call in message.tool_calls}

    @property
    def estimated(self) -> int:
        """The uncalibrated token estimate of the whole prompt."""
        return self.overhead + sum(map(request_tokens, self.fitted.messages))

    @property
    def why(self) -> CutReason:
        """Why part of the conversation was not sent; empty if all was."""
        if self.fitted.left_out or self.fitted.shortened:
            return "refused" if self.shrunk else self.bound
        return ""

    @property
    def _summarised_agent(self) -> str:
        """The agent of a summary, whose request does not name it."""
        return self.caller.agent if self.caller and self.caller.kind == "summary" else ""

    @property
    def _conversation(self) -> ModelConversation:
        session = self.caller.session if self.caller else ()
        return ModelConversation(self.provider, self.model, session, self.talk)

    def learn(self, usage: Usage) -> None:
        """Calibrate the estimate by the provider's own count, for the next request."""
        conversation = self._conversation
        calibration = self.calibrations.of(conversation)
        new_calibration = calibration.after(
            self.fitted.messages, estimated=self.estimated, reported=usage.input
        )
        self.calibrations.learn(conversation, new_calibration)

    def starts(self, attempt: ModelAttempt) -> ModelCall:
        """Count an attempt, and return its record before its request goes out."""
        self.tries += 1
        return self.record(attempt)

    def record(self, attempt: ModelAttempt) -> ModelCall:
        """The record of the newest attempt."""
        labels = self.options.config.labels or {}
        fitted, usage = self.fitted, attempt.usage
        span = sent_span(self.caller.rows, fitted.messages) if self.caller else None
        return ModelCall(
            attempt=attempt,
            number=self.tries,
            call=self.id,
            session=self.caller.session if self.caller else (),
            session_pk=self.caller.session_pk if self.caller else None,
            turn_number=self.caller.turn_number if self.caller else None,
            turn=self.caller.turn if self.caller else "",
            agent=self._summarised_agent or labels.get(_AGENT_LABEL, ""),
            kind=self.caller.kind if self.caller else "answer",
            budget=self.budget,
            estimated=self.estimated,
            sent=len(fitted.messages),
            left_out=fitted.left_out,
            shortened=fitted.shortened,
            why=self.why,
            first_seq=span[0] if span else None,
            last_seq=span[1] if span else None,
            price=price(f"{attempt.provider}:{attempt.model}", usage) if usage else None,
            system=PromptPart(self.system.content) if self.system else None,
            tools=PromptPart(self.tools_text) if self.tools_text else None,
        )


def prepare(
    llm_request: LlmRequest,
    provider: str,
    model: str,
    extra: Mapping[str, Any],
    caller: ModelCaller | None,
) -> PreparedCall:
    """Convert and pair ADK's request; the budget is not applied yet."""
    options = options_of(llm_request.config, extra)
    instruction = cast(object, options.config.system_instruction)  # pyright: ignore[reportUnknownMemberType]
    messages = convert_messages(llm_request.contents, instruction)
    system = messages[0] if messages and messages[0].role == "system" else None
    talk = pair_calls(messages[1:] if system else messages)
    declared = [[tool.name, tool.description, tool.parameters] for tool in options.tools]
    tools_text = json_text(storable_json(declared)) if declared else ""
    overhead = request_tokens(system) if system else 0
    overhead += estimate_tokens(tools_text) if tools_text else 0
    call = PreparedCall(provider, model, options, system, talk, tools_text, overhead, caller)
    if caller is not None and caller.kind == "summary":
        call.id = caller.call  # the same in every attempt of its turn: it is recorded once
    return call
