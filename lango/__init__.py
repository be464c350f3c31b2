"""lango runs Google ADK agents in production on your own database.

Every name is imported on first use: `import lango` loads neither ADK nor SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lango.adk.artifacts import SqlArtifactService
    from lango.adk.credentials.service import SqlCredentialService
    from lango.adk.durable.run import DurableAgent
    from lango.adk.memory import SqlMemoryService
    from lango.adk.models.adapter import ModelAdapter
    from lango.adk.models.convert import convert_messages
    from lango.adk.plugins import plugins
    from lango.adk.plugins.budget import BudgetPlugin
    from lango.adk.plugins.caller import CallerPlugin
    from lango.adk.plugins.limits import LimitsPlugin
    from lango.adk.plugins.model_calls import ModelCallsPlugin
    from lango.adk.plugins.repeat_stop import RepeatStopPlugin
    from lango.adk.plugins.tool_feedback import ToolFeedbackPlugin
    from lango.adk.plugins.transfer import TransferGuardPlugin
    from lango.adk.sessions.decode import EventsAdapter
    from lango.adk.sessions.normalise import normalise
    from lango.adk.sessions.service import SessionServiceAdapter
    from lango.adk.sessions.session import SessionAdapter
    from lango.adk.tools.adapter import ToolAdapter
    from lango.agent.agent import Agent
    from lango.core.context.model_calls import ModelCall
    from lango.core.context.tokens import estimate_tokens
    from lango.core.messages.history import DEFAULT_TOKEN_BUDGET, token_budget_truncate
    from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
    from lango.core.messages.streams import (
        Done,
        ReasoningDone,
        StreamEvent,
        StreamEventError,
        TextDelta,
        ThoughtDelta,
        ToolCallDone,
        Usage,
    )
    from lango.core.turns.events import Answer, Approval, CredentialRequest, TurnEvent
    from lango.errors import (
        AgentChangedError,
        AgentNotFoundError,
        AppGoneError,
        AppLoadError,
        ApprovalNeededError,
        ApprovalNotFoundError,
        AuthenticationError,
        BadRequestError,
        BadStreamError,
        BodyTooLargeError,
        CallNotFoundError,
        ConfigError,
        ContextTooLongError,
        CredentialNeededError,
        CredentialNotFoundError,
        CredentialRefusedError,
        CredentialsDisabledError,
        DatabaseHeldError,
        Fenced,
        ForbiddenError,
        IdentityUnavailableError,
        ImportSourceError,
        InvalidBodyError,
        InvalidIdError,
        InvalidKeyError,
        InvalidRunAtError,
        InvalidTimeLimitError,
        InvalidToolError,
        KeyLimitError,
        KeyNotFoundError,
        LangoError,
        LedgerConflictError,
        MediaTypeError,
        MissingExtraError,
        ModelCallNotFoundError,
        ModelError,
        ModelStoppedError,
        ModelTimeoutError,
        ModelUnavailableError,
        NotResumableError,
        ObjectStoreError,
        QuotaError,
        RateLimitedError,
        RepeatedCallError,
        RequestError,
        SandboxError,
        SchemaBusyError,
        SchemaError,
        ServerBusyError,
        SessionBusyError,
        SessionExistsError,
        SessionNotFoundError,
        StoreBusyError,
        StoreError,
        StoreUnavailableError,
        ToolArgumentsError,
        ToolError,
        ToolTimeoutError,
        TooManyAttemptsError,
        TurnCancelledError,
        TurnConflictError,
        TurnError,
        TurnLimitError,
        TurnNotFoundError,
        TurnTimeoutError,
        UnauthorizedError,
        UnknownAppError,
        UnknownFileError,
        UnknownModelError,
        UnknownToolError,
        UnsupportedRequestError,
        UnsupportedUrlError,
        WorkerLostError,
        WrongHostError,
    )
    from lango.providers.base import ModelRequest, Provider, ToolSpec
    from lango.store.sessions.store import SqlSessionStore
    from lango.store.turns.listing import TurnFilter
    from lango.telemetry.tracing.start import TraceOptions, start_tracing
    from lango.tools.base import CallInfo, Tool
    from lango.tools.function import tool
    from lango.tools.progress import report_progress
    from lango.turns.engine.database import LocalEngine
    from lango.turns.service import Turns
    from lango.turns.worker import TurnWorker

__all__ = [  # noqa: RUF022 - in the order of sorted()
    "Agent",
    "AgentChangedError",
    "AgentNotFoundError",
    "Answer",
    "AppGoneError",
    "AppLoadError",
    "Approval",
    "ApprovalNeededError",
    "ApprovalNotFoundError",
    "AuthenticationError",
    "BadRequestError",
    "BadStreamError",
    "BodyTooLargeError",
    "BudgetPlugin",
    "CallInfo",
    "CallNotFoundError",
    "CallerPlugin",
    "ConfigError",
    "ContextTooLongError",
    "CredentialNeededError",
    "CredentialNotFoundError",
    "CredentialRefusedError",
    "CredentialRequest",
    "CredentialsDisabledError",
    "DEFAULT_TOKEN_BUDGET",
    "DatabaseHeldError",
    "Done",
    "DurableAgent",
    "EventsAdapter",
    "Fenced",
    "ForbiddenError",
    "IdentityUnavailableError",
    "ImportSourceError",
    "InvalidBodyError",
    "InvalidIdError",
    "InvalidKeyError",
    "InvalidRunAtError",
    "InvalidTimeLimitError",
    "InvalidToolError",
    "KeyLimitError",
    "KeyNotFoundError",
    "LangoError",
    "LedgerConflictError",
    "LimitsPlugin",
    "LocalEngine",
    "Media",
    "MediaTypeError",
    "Message",
    "MissingExtraError",
    "ModelAdapter",
    "ModelCall",
    "ModelCallNotFoundError",
    "ModelCallsPlugin",
    "ModelError",
    "ModelRequest",
    "ModelStoppedError",
    "ModelTimeoutError",
    "ModelUnavailableError",
    "NotResumableError",
    "ObjectStoreError",
    "Provider",
    "QuotaError",
    "RateLimitedError",
    "Reasoning",
    "ReasoningDone",
    "RepeatStopPlugin",
    "RepeatedCallError",
    "RequestError",
    "SandboxError",
    "SchemaBusyError",
    "SchemaError",
    "ServerBusyError",
    "SessionAdapter",
    "SessionBusyError",
    "SessionExistsError",
    "SessionNotFoundError",
    "SessionServiceAdapter",
    "SqlArtifactService",
    "SqlCredentialService",
    "SqlMemoryService",
    "SqlSessionStore",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "StreamEvent",
    "StreamEventError",
    "TextDelta",
    "ThoughtDelta",
    "TooManyAttemptsError",
    "Tool",
    "ToolAdapter",
    "ToolArgumentsError",
    "ToolCall",
    "ToolCallDone",
    "ToolError",
    "ToolFeedbackPlugin",
    "ToolSpec",
    "ToolTimeoutError",
    "TraceOptions",
    "TransferGuardPlugin",
    "TurnCancelledError",
    "TurnConflictError",
    "TurnError",
    "TurnEvent",
    "TurnFilter",
    "TurnLimitError",
    "TurnNotFoundError",
    "TurnTimeoutError",
    "TurnWorker",
    "Turns",
    "UnauthorizedError",
    "UnknownAppError",
    "UnknownFileError",
    "UnknownModelError",
    "UnknownToolError",
    "UnsupportedRequestError",
    "UnsupportedUrlError",
    "Usage",
    "WorkerLostError",
    "WrongHostError",
    "convert_messages",
    "estimate_tokens",
    "normalise",
    "plugins",
    "report_progress",
    "start_tracing",
    "token_budget_truncate",
    "tool",
]

_HOMES = {
    "Agent": "lango.agent.agent",
    "Answer": "lango.core.turns.events",
    "Approval": "lango.core.turns.events",
    "BudgetPlugin": "lango.adk.plugins.budget",
    "CallInfo": "lango.tools.base",
    "CallerPlugin": "lango.adk.plugins.caller",
    "CredentialRequest": "lango.core.turns.events",
    "DEFAULT_TOKEN_BUDGET": "lango.core.messages.history",
    "Done": "lango.core.messages.streams",
    "DurableAgent": "lango.adk.durable.run",
    "EventsAdapter": "lango.adk.sessions.decode",
    "LimitsPlugin": "lango.adk.plugins.limits",
    "LocalEngine": "lango.turns.engine.database",
    "Media": "lango.core.messages.messages",
    "Message": "lango.core.messages.messages",
    "ModelAdapter": "lango.adk.models.adapter",
    "ModelCall": "lango.core.context.model_calls",
    "ModelCallsPlugin": "lango.adk.plugins.model_calls",
    "ModelRequest": "lango.providers.base",
    "Provider": "lango.providers.base",
    "Reasoning": "lango.core.messages.messages",
    "ReasoningDone": "lango.core.messages.streams",
    "RepeatStopPlugin": "lango.adk.plugins.repeat_stop",
    "SessionAdapter": "lango.adk.sessions.session",
    "SessionServiceAdapter": "lango.adk.sessions.service",
    "SqlArtifactService": "lango.adk.artifacts",
    "SqlCredentialService": "lango.adk.credentials.service",
    "SqlMemoryService": "lango.adk.memory",
    "SqlSessionStore": "lango.store.sessions.store",
    "StreamEvent": "lango.core.messages.streams",
    "StreamEventError": "lango.core.messages.streams",
    "TextDelta": "lango.core.messages.streams",
    "ThoughtDelta": "lango.core.messages.streams",
    "Tool": "lango.tools.base",
    "ToolAdapter": "lango.adk.tools.adapter",
    "ToolCall": "lango.core.messages.messages",
    "ToolCallDone": "lango.core.messages.streams",
    "ToolFeedbackPlugin": "lango.adk.plugins.tool_feedback",
    "ToolSpec": "lango.providers.base",
    "TraceOptions": "lango.telemetry.tracing.start",
    "TransferGuardPlugin": "lango.adk.plugins.transfer",
    "TurnEvent": "lango.core.turns.events",
    "TurnFilter": "lango.store.turns.listing",
    "TurnWorker": "lango.turns.worker",
    "Turns": "lango.turns.service",
    "Usage": "lango.core.messages.streams",
    "convert_messages": "lango.adk.models.convert",
    "estimate_tokens": "lango.core.context.tokens",
    "normalise": "lango.adk.sessions.normalise",
    "plugins": "lango.adk.plugins",
    "report_progress": "lango.tools.progress",
    "start_tracing": "lango.telemetry.tracing.start",
    "token_budget_truncate": "lango.core.messages.history",
    "tool": "lango.tools.function",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lango' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "lango.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
