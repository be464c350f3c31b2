"""Every error as RFC 9457 problem JSON, without internal details."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lango import errors
from lango.core.ids import new_id
from lango.core.values import storable_json
from lango.errors import LangoError
from lango.telemetry.logs import FIELDS
from lango.telemetry.tracing.current import current_trace_id, tracer

logger = logging.getLogger(__name__)

STATUS: Final[dict[type[BaseException], int]] = {
    errors.InvalidBodyError: 400,
    errors.UnsupportedRequestError: 400,
    errors.UnauthorizedError: 401,
    errors.ForbiddenError: 403,
    errors.ApprovalNotFoundError: 404,
    errors.CallNotFoundError: 404,
    errors.CredentialNotFoundError: 404,
    errors.ModelCallNotFoundError: 404,
    errors.SessionNotFoundError: 404,
    errors.TurnNotFoundError: 404,
    errors.CredentialsDisabledError: 409,
    errors.SessionBusyError: 409,
    errors.SessionExistsError: 409,
    errors.TurnConflictError: 409,
    errors.BodyTooLargeError: 413,
    errors.MediaTypeError: 415,
    errors.WrongHostError: 421,
    errors.CredentialRefusedError: 422,
    errors.InvalidIdError: 422,
    errors.InvalidTimeLimitError: 422,
    errors.InvalidRunAtError: 422,
    errors.UnknownAppError: 422,
    errors.UnknownFileError: 422,
    errors.KeyLimitError: 429,
    errors.QuotaError: 429,
    errors.TooManyAttemptsError: 429,
    errors.IdentityUnavailableError: 503,
    errors.ServerBusyError: 503,
    errors.StoreUnavailableError: 503,
}
"""The HTTP status of each error; any other error is a 500."""
RETRY_AFTER: Final = 1  # seconds, unless the error says otherwise
MEDIA_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:lango:error:{}"
_INTERNAL: Final = "Something went wrong here; the log of the server says what, under `error_id`."
_INVALID: Final = "The request does not have the form it should."
_FIELD_ROOM: Final = 100
MAX_FIELDS: Final = 20
"""How many wrong fields an answer names: a body may have hundreds of thousands."""


class FieldProblem(BaseModel):
    """What is wrong with one part of a request."""

    at: str = Field(description="Where: `body.title`, `query.limit`.")
    problem: str


class Problem(BaseModel):
    """An error in the form of RFC 9457."""

    type: str = Field(description="`urn:lango:error:` and the name of the error.")
    title: str
    status: int
    detail: str | None = Field(default=None, description="More about this case.")
    error_id: str | None = Field(default=None, description="What the server's log knows it by.")
    trace_id: str | None = Field(
        default=None, description="The trace of the request, if the server sends traces."
    )
    errors: list[FieldProblem] | None = Field(
        default=None, description="What is wrong with the request."
    )


def status_of(error: BaseException) -> int:
    """The status of an error, by its class or the nearest base class."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def type_of(name: str) -> str:
    """The URI of an error, by the name of its class."""
    words = re.sub(r"(?<=.)(?=[A-Z])", "-", name.removesuffix("Error"))
    return _TYPE.format(words.lower())


def problem_of(error: BaseException) -> Problem:
    """The problem that a client gets for an error.

    A 404 has no detail: missing resources and other users' resources must get the same answer.
    Nor has a 5xx, which could disclose internals.
    """
    status, kind = status_of(error), type(error)
    error_id = new_id("err") if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        internal = type_of("InternalError")
        return Problem(type=internal, title=_INTERNAL, status=status, error_id=error_id)
    title = (kind.__doc__ or "").strip().partition("\n")[0]
    is_quiet = error_id is not None or status == HTTPStatus.NOT_FOUND
    detail = None if is_quiet or str(error) == title else str(error)
    return Problem(
        type=type_of(kind.__name__), title=title, status=status, detail=detail, error_id=error_id
    )


def _headers(error: BaseException, status: int) -> dict[str, str]:
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, LangoError) and error.retryable:
        return {"Retry-After": str(math.ceil(error.retry_after or RETRY_AFTER))}
    return {}


Form = Callable[[Problem, dict[str, str]], JSONResponse]
"""Makes the response of a problem."""


def use_form(app: FastAPI, prefix: str, form: Form) -> None:
    """Use another form for the problems of an app's paths with this prefix."""
    app.state.forms = _forms_of(app) | {prefix: form}


def _forms_of(app: object) -> dict[str, Form]:
    state = getattr(app, "state", None)
    return cast("dict[str, Form]", getattr(state, "forms", {}))


def _respond(problem: Problem, scope: Scope, headers: dict[str, str] | None = None) -> JSONResponse:
    for prefix, form in _forms_of(scope.get("app")).items():
        if scope["path"].startswith(prefix):
            return form(problem, headers or {})
    problem.trace_id = current_trace_id()
    body = storable_json(problem.model_dump(exclude_none=True))
    return JSONResponse(body, problem.status, headers, MEDIA_TYPE)


def logged_problem(error: BaseException, scope: Scope) -> tuple[Problem, dict[str, str]]:
    """The problem and headers for an error; a server error is logged with its `error_id`."""
    problem = problem_of(error)
    if problem.error_id is not None:
        tracing = tracer()
        if tracing is not None:
            tracing.note_error(problem.error_id)
        # Without the query string, which may hold secrets; the path is quoted, as it may hold
        # a line break.
        values = (problem.error_id, scope.get("method"), quote(str(scope.get("path"))))
        known_by = {FIELDS: {"error_id": problem.error_id}}
        if isinstance(error, errors.ServerBusyError):  # thousands of them may come at once
            logger.warning("%s: %s %s was refused: the server is busy.", *values, extra=known_by)
        else:
            logger.error("%s: %s %s failed.", *values, exc_info=error, extra=known_by)
    return problem, _headers(error, problem.status)


def answer(error: BaseException, scope: Scope) -> JSONResponse:
    """The answer to a request that ended in an error."""
    problem, headers = logged_problem(error, scope)
    return _respond(problem, scope, headers)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return answer(error, request.scope)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    problems = fields_of(cast("RequestValidationError", error))
    problem = Problem(type=type_of("InvalidRequest"), title=_INVALID, status=422, errors=problems)
    return _respond(problem, request.scope)


def fields_of(error: RequestValidationError) -> list[FieldProblem]:
    """What is wrong with a request, without the values that were sent."""
    details = error.errors()[:MAX_FIELDS]
    return [
        FieldProblem(at=_location(detail["loc"]), problem=str(detail["msg"])) for detail in details
    ]


def _location(loc: Sequence[Any]) -> str:
    return ".".join(map(str, loc))[:_FIELD_ROOM]


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    raised = cast("HTTPException", error)
    status = HTTPStatus(raised.status_code)
    name = status.phrase.title().replace(" ", "")
    problem = Problem(type=type_of(name), title=status.description or status.phrase, status=status)
    return _respond(problem, request.scope, dict(raised.headers or {}))


class Unexpected:
    """Middleware that answers unexpected exceptions with a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer what it raises unless the answer has begun."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = False

        async def watch(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            logger.info("A client disconnected before its request was complete.")
        except Exception as error:
            if has_begun:
                raise
            await answer(error, scope)(scope, receive, send)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for the OpenAPI document."""
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    content = {MEDIA_TYPE: {"schema": schema}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def add_problems(app: FastAPI) -> None:
    """Answer every error of an app as a problem."""
    app.add_exception_handler(LangoError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_middleware(Unexpected)
