"""The names of spans and attributes.

Those of OpenTelemetry are from the semantic conventions 1.41.0, the last release with the GenAI
conventions, which are in development. Their Python constants are marked private, hence this list.
"""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.41.0"

TURN: Final = "turn"
ATTEMPT: Final = "attempt"
SUBMIT: Final = "submit_turn"
CLAIM: Final = "claim_turn"
CLOSE: Final = "close_turn"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
SYSTEM: Final = "gen_ai.system"  # the provider before version 1.37, which ADK sets as well
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CONVERSATION: Final = "gen_ai.conversation.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR_TYPE: Final = "error.type"
DATABASE: Final = "db.system.name"

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
PATH: Final = "url.path"
SCHEME: Final = "url.scheme"

APP: Final = "lango.app"
ERROR_ID: Final = "lango.error.id"  # by which the log has the error
TENANT: Final = "lango.tenant"
REQUEST_ID: Final = "lango.request.id"
TURN_ID: Final = "lango.turn.id"
TURN_NUMBER: Final = "lango.turn.number"
TURN_STATE: Final = "lango.turn.state"
TURN_ATTEMPTS: Final = "lango.turn.attempts"
QUEUE_WAIT: Final = "lango.turn.queue_wait"  # seconds
ATTEMPT_NUMBER: Final = "lango.attempt.number"
OUTCOME: Final = "lango.attempt.outcome"
WORKER: Final = "lango.worker.id"
CALL_ATTEMPTS: Final = "lango.model_call.attempts"
ATTEMPT_FAILED: Final = "lango.model_call.attempt_failed"  # an event of the span

CONTENT: Final = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gcp.vertex.agent.llm_request",
        "gcp.vertex.agent.llm_response",
        "gcp.vertex.agent.tool_call_args",
        "gcp.vertex.agent.tool_response",
        "gcp.vertex.agent.data",
    }
)
"""Attributes that hold what users, models and tools said."""
EXCEPTION_CONTENT: Final = frozenset({"exception.message", "exception.stacktrace"})
"""The same in the events of spans: an error may quote a prompt, an argument or a key."""

PROVIDERS: Final = {
    "openai-chat": "openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""The conventions' names of providers whose name in lango is another one."""
