"""Errors in OpenAI's form, for OpenAI's clients."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import Scope

from lango.core.values import JsonObject, storable_json
from lango.errors import (
    InvalidIdError,
    LangoError,
    UnauthorizedError,
    UnknownAppError,
    UnsupportedRequestError,
)
from lango.server.http.answers import AnsweringRoute
from lango.server.http.problems import Problem, fields_of, logged_problem, type_of, use_form
from lango.server.openai.schemas import ErrorAnswer, ErrorBody
from lango.telemetry.tracing.current import current_trace_id

TURN_ERROR_STATUS: Final = 422
"""The status of a request whose turn was accepted and gave no answer: one that no client retries.

A repeated request would be a new turn, and would run its tools again. Vercel's AI SDK and many
proxies decide by the status alone: the SDK retries 408, 409, 429 and every 5xx.
"""
NO_RETRY: Final = {"X-Should-Retry": "false"}
"""Means the same to OpenAI's SDKs, which read it before the status."""
_INTERRUPTED: Final = (
    "The server ended this request, and turn {turn} continues. Do not send the message again: that "
    "would start another turn. GET /v1/turns/{turn} returns the answer; a conversation with the "
    "part of it that has arrived continues in the same session."
)
_NO_OPERATION: Final = (
    "This path is not served. Agents answer POST /openai/v1/chat/completions and GET "
    "/openai/v1/models: set the client's base URL to /openai/v1, and have it use Chat Completions "
    "and not the Responses API."
)
_STATUS: Final[dict[type[BaseException], int]] = {InvalidIdError: 400, UnknownAppError: 404}
"""Statuses that differ from those of /v1."""
_CODES: Final[dict[type[BaseException], str]] = {
    UnauthorizedError: "invalid_api_key",
    UnknownAppError: "model_not_found",
}
_SERVER_ERROR: Final = "server_error"
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class OpenAIRoute(AnsweringRoute):
    """A route whose errors are in OpenAI's form."""

    def answer(self, error: Exception, scope: Scope) -> Response:
        """The answer in OpenAI's form."""
        if isinstance(error, RequestValidationError):
            problems = fields_of(error)
            message = "; ".join(f"{field.at}: {field.problem}" for field in problems)
            param = problems[0].at.removeprefix("body.") if problems else None
            return respond(400, message, "invalid_request", param=param)
        return answer(error, scope)


def use_openai_form(app: FastAPI) -> None:
    """Answer all problems below OpenAI's routes in its form, also those of unknown paths."""
    use_form(app, "/openai/", _respond_to)


def _respond_to(problem: Problem, headers: dict[str, str]) -> JSONResponse:
    code = problem.type.rpartition(":")[2].replace("-", "_")
    message = _NO_OPERATION if problem.status == 404 else problem.detail or problem.title
    return respond(problem.status, message, code, headers)


def answer(error: Exception, scope: Scope) -> Response:
    """The answer to a request that ended in an error."""
    problem, headers = logged_problem(error, scope)
    status = _STATUS.get(type(error), problem.status)
    says = str(error) if type(error) in _CODES else problem.detail or problem.title
    code = _CODES.get(type(error)) or problem.type.rpartition(":")[2].replace("-", "_")
    param = error.param if isinstance(error, UnsupportedRequestError) else None
    return respond(status, says, code, headers, param=param, error_id=problem.error_id)


def failure(error: JsonObject | None) -> JsonObject:
    """The error answer of a failed turn; the turn's error is safe to show to clients."""
    details = error or {"type": LangoError.__name__, "message": "The turn failed."}
    code = type_of(str(details["type"])).rpartition(":")[2].replace("-", "_")
    return _body(str(details["message"]), _SERVER_ERROR, code, error_id=details.get("error_id"))


def interruption(turn_id: str) -> JsonObject:
    """The error answer of a request that the server ends before its turn ends."""
    return _body(_INTERRUPTED.format(turn=turn_id), _SERVER_ERROR, "answer_interrupted")


def turn_error(body: JsonObject) -> JSONResponse:
    """The response to a request whose turn was accepted and gave no answer."""
    return JSONResponse(body, TURN_ERROR_STATUS, NO_RETRY)


def respond(
    status: int,
    message: str,
    code: str,
    headers: dict[str, str] | None = None,
    *,
    param: str | None = None,
    error_id: str | None = None,
) -> JSONResponse:
    """A response with an error in OpenAI's form."""
    kind = _TYPES.get(status) or (_SERVER_ERROR if status >= 500 else "invalid_request_error")
    body = _body(message, kind, code, param=param, error_id=error_id)
    return JSONResponse(storable_json(body), status, headers)


def _body(
    message: str, kind: str, code: str, *, param: str | None = None, error_id: str | None = None
) -> JsonObject:
    """An error in OpenAI's form; the error id is in the message too, as clients show only that."""
    text = f"{message} (error_id: {error_id})" if error_id else message
    ids = {"error_id": error_id, "trace_id": current_trace_id()}
    error = ErrorBody(message=text, type=kind, param=param, code=code, **ids)
    unset = {name for name, value in ids.items() if not value}
    return ErrorAnswer(error=error).model_dump(exclude={"error": unset})


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for the OpenAPI document."""
    return {
        status: {"description": HTTPStatus(status).phrase, "model": ErrorAnswer}
        for status in statuses
    }
