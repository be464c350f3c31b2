"""A record of every model call, for any model class."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.models.caller import ModelCaller, RequestCut, current_caller, note_caller, note_tool
from lango.adk.models.convert import convert_messages
from lango.adk.models.sent_rows import sent_span
from lango.adk.models.usage import usage_of
from lango.adk.plugins.models import declared_text, instruction_of, model_of, named
from lango.core.context.budget import request_tokens
from lango.core.context.model_calls import CallOutcome, ModelAttempt, ModelCall, PromptPart
from lango.core.context.tokens import estimate_tokens
from lango.core.messages.streams import Usage
from lango.providers.registry import price


class RecordingPlugin(BasePlugin):
    """Receives a record of every model call: from lango's models, or through ADK's callbacks.

    A call of another model counts as one attempt: its internal retries are invisible. If it is
    cancelled, it has no record, because ADK calls no plugin then.
    """

    async def flush(self) -> None:
        """Wait until the records so far are written, for a limited time."""

    @abstractmethod
    def recorded(self, caller: ModelCaller, record: ModelCall) -> None:
        """Process a record; the turn waits meanwhile."""

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Subscribe to the records of the next call."""
        caller = note_caller(callback_context, llm_request)
        if self.recorded not in caller.reports:
            caller.starts.append(self.started)
            caller.reports.append(self.recorded)
        return None

    async def started(self, caller: ModelCaller, record: ModelCall) -> None:
        """Process the record of an attempt before its request goes out; the request waits."""
        del caller, record

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Report a call that its model has not reported itself."""
        caller = current_caller.get()
        if caller is None:
            return None
        caller.first_byte = caller.first_byte or time.time()
        if not llm_response.partial and not caller.records:
            metadata = llm_response.usage_metadata
            usage = usage_of(metadata) if metadata else None
            error = llm_response.error_code or ""
            caller.report(record_of(caller, model_of(callback_context), "completed", error, usage))
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Report a failed call that its model has not reported itself."""
        caller = current_caller.get()
        if caller is not None and caller.request is llm_request and not caller.records:
            caller.report(
                record_of(caller, model_of(callback_context), "failed", type(error).__name__)
            )
        return None

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Note the tool's turn: the calls of an agent that it runs belong to that turn."""
        del tool, tool_args
        note_tool(tool_context)
        return None


def record_of(
    caller: ModelCaller,
    llm: BaseLlm | None,
    outcome: CallOutcome,
    error: str = "",
    usage: Usage | None = None,
) -> ModelCall:
    """The record of a call, from what is visible outside its model."""
    request = caller.request or LlmRequest()
    messages = convert_messages(request.contents, instruction_of(request.config))
    system = messages[0] if messages and messages[0].role == "system" else None
    talk = messages[1:] if system else messages
    tools = declared_text(request.config)
    span = sent_span(caller.rows, talk)
    cut = caller.cut or RequestCut(0)
    provider, model = named(llm)
    attempt = ModelAttempt(
        provider=provider,
        model=model,
        started=caller.started,
        ended=time.time(),
        first_byte=caller.first_byte,
        outcome=outcome,
        error=error,
        usage=usage,
    )
    return ModelCall(
        attempt=attempt,
        number=1,
        call=caller.call,
        session=caller.session,
        session_pk=caller.session_pk,
        turn_number=caller.turn_number,
        turn=caller.turn,
        agent=caller.agent,
        kind=caller.kind,
        budget=cut.budget,
        estimated=sum(map(request_tokens, messages)) + (estimate_tokens(tools) if tools else 0),
        sent=len(talk),
        left_out=cut.left_out,
        shortened=cut.shortened,
        why=cut.why,
        first_seq=span[0] if span else None,
        last_seq=span[1] if span else None,
        price=price(f"{provider}:{model}", usage) if usage else None,
        system=PromptPart(system.content) if system else None,
        tools=PromptPart(tools) if tools else None,
    )
