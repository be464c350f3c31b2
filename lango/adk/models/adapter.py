"""ADK's model class for any provider: valid requests within the budget, one final answer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Self

from google.adk.models import BaseLlm, LlmCapabilities, LLMRegistry
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from pydantic import Field, PrivateAttr

from lango.adk.compat.telemetry import forget_partial_responses
from lango.adk.models.caller import current_caller
from lango.adk.models.direct_deltas import AnswerDeltas
from lango.adk.models.request import PreparedCall, prepare
from lango.adk.models.responses import ReceivedAnswer
from lango.core.context.calibrations import Calibrations
from lango.core.context.model_calls import CallHook, ModelAttempt, ModelCall
from lango.providers.base import Provider
from lango.providers.policy.retry import Policy, PolicyProvider
from lango.providers.registry import Access, resolve
from lango.providers.registry import context_window as known_window
from lango.telemetry.tracing.current import tracer

logger = logging.getLogger(__name__)

PREFIX: Final = "lango/"
"""The prefix of a model's name in ADK's registry: `Agent(model="lango/openai:gpt-5")`."""
_ONCE: Final = Policy(tries=1)


class ModelAdapter(BaseLlm):
    """A model of any provider, as an ADK model.

    `provider` is a name like "openai:gpt-5", with optional `policy`, `fallbacks` (names too),
    `api_key` and `base_url` (for fallbacks of other providers, use `access` by provider). Or it is
    a Provider, used as it is, with its own name of the model in `model`.

    `token_budget` limits the messages of each request: 0 means the default of 32,000, None as
    much as the model's window holds. Set `context_window` if lango does not know that window.
    `extra` is passed to the vendor unchanged. `on_model_call` gets the record of every attempt,
    and may be async.
    """

    token_budget: int | None = 0
    context_window: int | None = None
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    on_model_call: CallHook | None = None
    _provider: PolicyProvider = PrivateAttr()
    _name: str = PrivateAttr()
    _calibrations: Calibrations = PrivateAttr(default_factory=Calibrations)

    def __init__(
        self,
        provider: Provider | str = "",
        model: str = "",
        *,
        policy: Policy | None = None,
        fallbacks: Sequence[str] = (),
        api_key: str | None = None,
        base_url: str | None = None,
        access: Mapping[str, Access] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(provider, str):
            full_name = (provider or model).removeprefix(PREFIX)
            if api_key or base_url:
                access, gateway = access or {}, full_name.partition(":")[0]
                gateway_access = access.get(gateway, Access())
                model_access = Access(
                    api_key or gateway_access.api_key, base_url or gateway_access.base_url
                )
                access = {**access, gateway: model_access}
            upstream, model = resolve(full_name, policy=policy, fallbacks=fallbacks, access=access)
            options.setdefault("context_window", known_window(full_name))
        else:
            upstream, full_name = provider, f"{provider.name}:{model}".removesuffix(":")
        super().__init__(model=full_name, **options)
        forget_partial_responses()
        self._name = model
        self._provider = (
            upstream
            if isinstance(upstream, PolicyProvider)
            else PolicyProvider(upstream, policy or _ONCE)
        )

    @classmethod
    def supported_models(cls) -> list[str]:
        """The names that ADK's registry maps to this class."""
        return [f"{PREFIX}.+"]

    @property
    def capabilities(self) -> LlmCapabilities:
        """Not every provider API accepts tools with an output schema: ADK combines the two."""
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One response with the whole answer; when streaming, a partial one per delta before it.

        In a durable turn only the first delta: the others reach the turn's log directly, unless
        code of the app could see them in ADK. A provider's error is raised as it is. If a model
        finds the conversation too long, the history is shrunk and the request retried once.
        """
        call = self._prepared(llm_request)
        tracing = tracer()
        call.span = None if tracing is None else tracing.model_call()
        answer = ReceivedAnswer(call.provider, call.model, call.call_ids())
        deltas = AnswerDeltas(call.direct_deltas(llm_request)) if stream else None
        pending: list[Awaitable[None]] = []
        start, note = partial(self._start, call), partial(self._note, call, pending)
        try:
            answers = self._provider.answer(call, on_start=start, on_attempt=note)
            async with aclosing(answers) as events:
                async for event in events:
                    answer.take(event)
                    partial_response = deltas.partial(event) if deltas else None
                    if partial_response is not None:
                        yield partial_response
            answer.of(call.provider, call.model)
            final = answer.final()
            if call.span is not None and answer.done is not None:
                call.span.answered(answer.done.model, answer.done.finish_reason)
        except Exception as error:
            answer.of(call.provider, call.model)
            answer.explain(error)
            if call.span is not None:
                call.span.failed(error)
            raise
        finally:
            if call.span is not None:
                call.span.end()
            await _all(pending)
        yield final

    async def warm_up(self) -> None:
        """Import the SDKs and create the clients, so that the first answer does not wait for them.

        Raises MissingExtraError, and AuthenticationError if the SDK needs its key at this point.
        """
        await self._provider.warm_up()

    async def close(self) -> None:
        """Close the connections of the running loop; a later request opens new ones."""
        await self._provider.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _prepared(self, llm_request: LlmRequest) -> PreparedCall:
        call = prepare(
            llm_request, self._provider.name, self._name, self.extra, current_caller.get()
        )
        call.token_budget, call.window = self.token_budget, self.context_window
        if call.caller is not None and call.caller.kind == "summary":
            call.token_budget = None  # it is for an agent's history, which this request shortens
        call.calibrations = self._calibrations
        return call

    async def _start(self, call: PreparedCall, attempt: ModelAttempt) -> None:
        """Report an attempt before its request goes out."""
        record = call.starts(attempt)
        if call.span is not None:
            call.span.begins(attempt)
        if call.caller is not None:
            await call.caller.start(record)

    def _note(
        self, call: PreparedCall, pending: list[Awaitable[None]], attempt: ModelAttempt
    ) -> None:
        """Report an ended attempt, and learn from it."""
        if attempt.usage is not None:
            call.learn(attempt.usage)
        if call.span is not None:
            call.span.ended(attempt)
        record = call.record(attempt)
        if call.caller is not None:
            call.caller.report(record)
        pending.extend(self._report(record))

    def _report(self, record: ModelCall) -> list[Awaitable[None]]:
        """Call the hook; return what is to be awaited."""
        if self.on_model_call is None:
            return []
        try:
            reported = self.on_model_call(record)
        except Exception:
            logger.exception("on_model_call failed; the turn continues.")
            return []
        return [reported] if inspect.isawaitable(reported) else []


async def _all(waiting: Sequence[Awaitable[None]]) -> None:
    for report in waiting:
        try:
            await report
        except Exception:
            logger.exception("on_model_call failed; the turn continues.")


LLMRegistry.register(ModelAdapter)
