"""Failed tries of a Workflow's functions: stored in the ledger, and raised again for ADK."""

from __future__ import annotations

from typing import Any, Final

from lango.adk.compat.workflow import DynamicNodeFailError
from lango.core.values import JsonObject
from lango.errors import LangoError

_KINDS: Final = "failed_with"
_MESSAGE: Final = "message"
_STATUS: Final = "status"
_OF_CHILD: Final = "of_child"
_RETRYABLE: Final = "retryable"
_COMMON: Final = {object, BaseException, Exception, LangoError}


def failure_of(error: Exception) -> JsonObject:
    """A failure for the ledger, with all class names that a RetryConfig may match."""
    of_child = isinstance(error, DynamicNodeFailError)
    error = error.error if isinstance(error, DynamicNodeFailError) else error
    status: Any = getattr(error, "status", None)
    return {
        _KINDS: [kind.__name__ for kind in type(error).__mro__ if kind not in _COMMON],
        _MESSAGE: str(error),
        _STATUS: status if isinstance(status, str) else None,
        _OF_CHILD: of_child,
        _RETRYABLE: error.retryable if isinstance(error, LangoError) else None,
    }


def is_failure(result: Any) -> bool:
    """Whether the ledger has a failure; a function's result is a list of events."""
    return isinstance(result, dict)


def is_of_child(failure: JsonObject) -> bool:
    """Whether a node that the function ran has failed: ADK writes an event for that node only."""
    return bool(failure.get(_OF_CHILD))


def replayed_error(failure: JsonObject, node_path: str, *, is_stored: bool) -> Exception:
    """The error that makes ADK count the try, and write its event only if it is not stored."""
    error = _rebuilt(failure)
    if not is_stored:
        return error
    return DynamicNodeFailError(message=str(error), error=error, error_node_path=node_path)


def _rebuilt(failure: JsonObject) -> Exception:
    """An error with the same class names; a LangoError if the original was one.

    The real class is not used: its arguments and attributes are not in the ledger.
    """
    retryable = failure.get(_RETRYABLE)
    error_class: type[Exception] = Exception
    if retryable is not None:
        error_class = type(LangoError.__name__, (LangoError,), {_RETRYABLE: retryable})
    for kind in reversed(failure[_KINDS]):
        error_class = type(kind, (error_class,), {})
    error = error_class(failure[_MESSAGE])
    if failure.get(_STATUS) is not None:
        error.status = failure[_STATUS]  # pyright: ignore[reportAttributeAccessIssue]
    return error
