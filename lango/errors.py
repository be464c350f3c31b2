"""Every error lango raises on purpose; docs/reference/errors.md says what to do about each.

A class's docstring is its default message, and ``retryable`` is a class attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class LangoError(Exception):
    """Something in lango went wrong."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.retry_after = retry_after  # seconds until a retry makes sense


class ConfigError(LangoError, ValueError):
    """The settings are wrong."""


class AppLoadError(ConfigError):
    """The agent could not be loaded from its code."""


class UnknownToolError(ConfigError):
    """There is no such tool."""


class InvalidToolError(ConfigError):
    """The tool cannot be used as it is declared or configured."""


class SandboxError(InvalidToolError):
    """Commands run in a sandbox of bubblewrap, which is missing or cannot work here."""


class InvalidIdError(LangoError, ValueError):
    """An id must be 1 to 256 characters without control characters or lone surrogates."""


class InvalidTimeLimitError(LangoError, ValueError):
    """The time limit of a turn must be more than 0 and at most 2592000 seconds (30 days)."""


class InvalidRunAtError(LangoError, ValueError):
    """`run_at` must be a datetime with a time zone, in the years 1971 to 9998."""


class SessionNotFoundError(LangoError):
    """There is no such session."""


class ModelCallNotFoundError(LangoError):
    """The session has no such model call."""


class SessionExistsError(LangoError):
    """A session with this id exists already."""


class SessionBusyError(LangoError):
    """A turn is running in this session; only that turn may write to it until it ends."""

    retryable = True


class StoreError(LangoError):
    """The session store failed."""


class DatabaseHeldError(StoreError):
    """No turn runs in this database until an operator runs `lango db release`."""


class UnsupportedUrlError(StoreError, ValueError):
    """A store URL begins with postgresql:// or sqlite:/// and names no driver."""


class SchemaError(StoreError):
    """The database does not have the tables this version of lango needs."""


class SchemaBusyError(SchemaError):
    """The tables could not be changed: other transactions kept them locked."""

    retryable = True


class StoreUnavailableError(StoreError):
    """The database did not answer, or kept failing, after several tries."""

    retryable = True


class ObjectStoreError(StoreUnavailableError):
    """The object store of files did not answer, or refused the operation."""


class StoreBusyError(StoreUnavailableError):
    """No connection to the database became free in time, or the session stayed locked."""


class ToolError(LangoError):
    """The tool refused the call."""


class ToolArgumentsError(ToolError, ValueError):
    """The arguments do not fit the tool's parameters."""


class ToolTimeoutError(ToolError):
    """The tool exceeded its time limit."""


class UnauthorizedError(LangoError):
    """The request has no valid credential."""


class ForbiddenError(LangoError):
    """The credential does not allow this."""


class IdentityUnavailableError(LangoError):
    """The token issuer's keys could not be fetched, so no token can be verified."""

    retryable = True


class KeyLimitError(LangoError):
    """The API key, or the user of a token, has reached a limit."""

    retryable = True

    def __init__(
        self, message: str = "", *, limit: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit  # "requests", "turns", "streams" or "cost"


class QuotaError(LangoError):
    """The tenant has reached a quota."""

    retryable = True

    def __init__(
        self, message: str = "", *, quota: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.quota = quota  # "open_turns", "history_tokens" or "file_bytes"


class TooManyAttemptsError(LangoError):
    """Too many API keys that are not known here came from this address; wait, then try again."""

    retryable = True


class KeyNotFoundError(LangoError):
    """There is no such API key."""


class InvalidKeyError(LangoError, ValueError):
    """The API key cannot be created or changed like this."""


class ImportSourceError(LangoError):
    """The import source cannot be read, or is damaged."""


class ModelError(LangoError):
    """The model call failed."""

    def __init__(
        self,
        message: str = "",
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        request_id: str = "",
        partial_text: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.provider = provider
        self.model = model
        self.status = status
        self.request_id = request_id
        self.partial_text = partial_text  # the model's text before it failed

    def __str__(self) -> str:
        model = " ".join(filter(None, (self.provider, self.model)))
        status = f"HTTP {self.status}" if self.status else ""
        request = f"request {self.request_id}" if self.request_id else ""
        details = ", ".join(filter(None, (model, status, request)))
        return f"{super().__str__()} ({details})" if details else super().__str__()


class UnknownModelError(ModelError, ValueError):
    """There is no such provider, or it has no such model."""


class MissingExtraError(ModelError, ImportError):
    """The SDK of this provider is not installed."""


class AuthenticationError(ModelError):
    """The provider's key is missing, wrong, or not allowed to do this."""


class BadRequestError(ModelError):
    """The provider refused the request as it was sent."""


class ContextTooLongError(ModelError):
    """The conversation has more tokens than the model or the budget allows."""


class RateLimitedError(ModelError):
    """The provider allows no more requests or tokens for now."""

    retryable = True


class ModelTimeoutError(ModelError):
    """The model did not answer, or fell silent in the middle of an answer."""

    retryable = True


class ModelUnavailableError(ModelError):
    """The provider could not be reached, is overloaded, or fails."""

    retryable = True


class BadStreamError(ModelError):
    """The answer broke off, or violated the provider's protocol."""

    retryable = True


class ModelStoppedError(ModelError):
    """The model stopped without an answer."""


class TurnError(LangoError):
    """The turn ended without an answer."""

    partial_text: str = ""  # the text before the error


class AgentNotFoundError(TurnError):
    """The model transferred the turn to an agent that does not exist or is not a valid target."""

    def __init__(self, name: str, valid: Sequence[str] = ()) -> None:
        super().__init__(f"failed to find agent: {name}")
        self.name = name
        self.valid = tuple(valid)  # the agents that the transfer could have named


class ApprovalNeededError(TurnError):
    """A tool call waits for a person's approval."""

    def __init__(self, message: str = "", *, approvals: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.approvals = tuple(approvals)  # of lango.core.turns.events: `approval.answer(True)`


class ApprovalNotFoundError(TurnError):
    """No tool call of this session waits for that approval."""


class CallNotFoundError(TurnError):
    """No long-running call of that id waits for its result."""


class CredentialNeededError(TurnError):
    """A tool call waits for a user's credential."""

    def __init__(self, message: str = "", *, credentials: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.credentials = tuple(credentials)  # of lango.core.turns.events: CredentialRequest


class CredentialRefusedError(TurnError):
    """The credential cannot be used: the call still waits for one."""


class CredentialNotFoundError(LangoError):
    """The user has no such credential, or no turn waits for this consent."""


class CredentialsDisabledError(TurnError):
    """A tool needs a user's credential, and no key encrypts one: set `credentials.keys`."""


class TurnConflictError(TurnError):
    """The answer or the idempotency key conflicts with an existing turn."""


class TurnLimitError(TurnError):
    """The turn exceeded one of its limits."""

    def __init__(
        self, message: str = "", *, limit: str = "", allowed: float = 0, used: float = 0
    ) -> None:
        super().__init__(message)
        self.limit = limit  # "model_calls", "tool_calls", "tokens", "cost" or "open_calls"
        self.allowed = allowed
        self.used = used


class RepeatedCallError(TurnError):
    """The model kept repeating a tool call after it was asked to stop."""

    def __init__(self, message: str = "", *, tool: str = "") -> None:
        super().__init__(message)
        self.tool = tool


class TurnNotFoundError(TurnError):
    """There is no such turn."""


class UnknownFileError(TurnError):
    """The session lacks a file that the turn refers to."""


class TurnTimeoutError(TurnError):
    """The turn exceeded its time limit."""


class WorkerLostError(TurnError):
    """The turn's worker died, and so did every worker that resumed the turn."""


class AppGoneError(TurnError):
    """The turn's worker died, and no worker has loaded the turn's app since."""


class NotResumableError(TurnError):
    """A turn of an agent of this shape cannot be resumed."""


class AgentChangedError(TurnError):
    """The turn's worker died, and the agent has changed too much to resume the turn."""


class LedgerConflictError(TurnError):
    """Two tool calls of a turn have the same key, so the result of one could pass for the other."""


class TurnCancelledError(TurnError):
    """The turn was cancelled."""


class RequestError(LangoError):
    """The server does not accept this request."""


class UnknownAppError(RequestError):
    """No agent of that name is served here; GET /v1/agents lists those that are."""


class InvalidBodyError(RequestError):
    """The body is not JSON, is nested too deep, or is empty."""


class UnsupportedRequestError(RequestError):
    """An agent cannot do what the request asks for."""

    def __init__(self, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param  # the field of the request that asks for it


class BodyTooLargeError(RequestError):
    """The body is larger than the server accepts."""


class MediaTypeError(RequestError):
    """The endpoint does not accept this media type; most accept `application/json`."""


class WrongHostError(RequestError):
    """This server does not serve that host; see its setting `server.allowed_hosts`."""


class ServerBusyError(RequestError):
    """This server is at its limit; retry later, or use another server."""

    retryable = True


class Fenced(BaseException):
    """Another worker owns the session now; this one must stop and write nothing more.

    A BaseException, because ADK catches Exception and would carry on.
    """
