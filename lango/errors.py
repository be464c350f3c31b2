"""Every error lango raises on purpose.

    LangoError
    ├── ConfigError                the settings are wrong or incomplete
    │   ├── AppLoadError           the code an app is loaded from is missing or is no agent
    │   ├── UnknownToolError       no built-in tool of that name, and no such code
    │   └── InvalidToolError       a tool declared or configured in a way that cannot work
    │       └── SandboxError       `exec` where bubblewrap is missing or cannot work
    ├── InvalidIdError             an id that the database could not keep unchanged
    ├── InvalidTimeLimitError      a time limit of a turn that is not a valid number of seconds
    ├── InvalidRunAtError          a start time of a turn without a time zone, or out of range
    ├── SessionNotFoundError
    ├── ModelCallNotFoundError
    ├── SessionExistsError
    ├── SessionBusyError           a turn holds the session (retryable)
    ├── StoreError
    │   ├── UnsupportedUrlError    neither postgresql:// nor sqlite:///
    │   ├── SchemaError            tables missing, too old, or too new for this lango
    │   │   └── SchemaBusyError    other transactions kept the tables locked (retryable)
    │   └── StoreUnavailableError  the database did not answer (retryable)
    │       └── StoreBusyError     no connection was free, or the session was locked, for too long
    ├── ModelError                 a model call failed: provider, model, status, request id,
    │   │                          and the text that came before it are on the error
    │   ├── UnknownModelError      no provider of that name, or no such model there
    │   ├── MissingExtraError      the provider's SDK is not installed
    │   ├── AuthenticationError    the key is missing, wrong, or may not do this
    │   ├── BadRequestError        refused as it was sent; a retry does not help
    │   ├── ContextTooLongError    more tokens than fit, and nothing left to leave out
    │   ├── RateLimitedError       too many requests or tokens (retryable)
    │   ├── ModelTimeoutError      no answer, or silence in the middle of one (retryable)
    │   ├── ModelUnavailableError  not reached, overloaded or failing (retryable)
    │   ├── ModelStoppedError      it ended without an answer: filtered, or out of room
    │   └── BadStreamError         an answer that broke off or was invalid (retryable)
    ├── ToolError                  a tool's own refusal: its text is for the model
    │   ├── ToolArgumentsError     arguments that do not fit the tool's parameters
    │   └── ToolTimeoutError       the tool exceeded its timeout
    ├── TurnError                  a turn without an answer; its text so far is on the error
    │   ├── AgentNotFoundError     a transfer to an agent that is missing or not allowed
    │   ├── ApprovalNeededError    a tool call waits for a person, and with it the answer
    │   ├── ApprovalNotFoundError  an answer to an approval that no call waits for
    │   ├── CallNotFoundError      a result for a call that does not wait for one
    │   ├── TurnConflictError      answered before, for two turns, or a key used twice
    │   ├── TurnNotFoundError
    │   ├── UnknownFileError       its session does not have a file that it names
    │   ├── TurnTimeoutError       it exceeded its time limit
    │   ├── WorkerLostError        its worker died, and so did those that took it over
    │   ├── AppGoneError           its worker died, and no worker has loaded its app since
    │   ├── NotResumableError      this kind of agent cannot resume the turn where it stopped
    │   ├── AgentChangedError      its worker died, and the new one has another agent version
    │   ├── LedgerConflictError    a tool call under the key of another one; no result is used
    │   ├── TurnLimitError         more model calls, tool calls, tokens or money than allowed
    │   ├── RepeatedCallError      the same tool call over and over, though told to stop
    │   └── TurnCancelledError     it was cancelled
    ├── UnauthorizedError          no credential, or no valid one
    ├── ForbiddenError             a valid credential that does not allow this
    ├── IdentityUnavailableError   the issuer's keys could not be fetched to verify a token
    │                              (retryable)
    ├── TooManyAttemptsError       too many unknown API keys from one address (retryable)
    ├── KeyLimitError              an API key has reached one of its limits (retryable)
    ├── QuotaError                 a tenant has reached one of its quotas (retryable)
    ├── KeyNotFoundError
    ├── InvalidKeyError            an API key that cannot be created or changed like this
    ├── RequestError               a request that the server does not accept
    │   ├── UnknownAppError        no agent of that name is served here
    │   ├── InvalidBodyError       a body that is not JSON, nested too deep, or empty
    │   ├── UnsupportedRequestError  an option of an OpenAI client that no agent supports
    │   ├── BodyTooLargeError
    │   ├── MediaTypeError         a body of an unsupported type, or not of its declared type
    │   ├── WrongHostError         sent to a host name that this server does not serve
    │   └── ServerBusyError        no more connections, or about to stop (retryable)
    └── ImportSourceError          the source of an import is unreadable or damaged

    Fenced                         not an error to handle: this worker lost its session

A class's docstring is its default message, and ``retryable`` is a class attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class LangoError(Exception):
    """Something in lango went wrong."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


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

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeyLimitError(LangoError):
    """The API key, or the user of a token, has reached a limit."""

    retryable = True

    def __init__(
        self, message: str = "", *, limit: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.limit = limit  # "requests", "turns", "streams" or "cost"
        self.retry_after = retry_after  # seconds until a retry makes sense


class QuotaError(LangoError):
    """The tenant has reached a quota."""

    retryable = True

    def __init__(
        self, message: str = "", *, quota: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.quota = quota  # "open_turns", "history_tokens" or "file_bytes"
        self.retry_after = retry_after  # seconds until a retry makes sense


class TooManyAttemptsError(LangoError):
    """Too many API keys that are not known here came from this address; wait, then try again."""

    retryable = True

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


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
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.request_id = request_id
        self.partial_text = partial_text  # the model's text before it failed
        self.retry_after = retry_after  # seconds the provider asked to wait

    def __str__(self) -> str:
        named = " ".join(filter(None, (self.provider, self.model)))
        status = f"HTTP {self.status}" if self.status else ""
        request = f"request {self.request_id}" if self.request_id else ""
        where = ", ".join(filter(None, (named, status, request)))
        return f"{super().__str__()} ({where})" if where else super().__str__()


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
