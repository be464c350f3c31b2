"""Errors in OpenAI's form, for OpenAI's clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import Scope

from lango.core.values import JsonObject, storable_json
from lango.errors import InvalidIdError, LangoError, UnauthorizedError, UnknownAppError
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import Problem, fields_of, logged_problem, type_of, use_form
from lango.server.openai.schemas import ErrorAnswer, ErrorBody

NO_RETRY: Final = {"X-Should-Retry": "false"}
"""Keeps OpenAI's SDKs from retrying a request whose turn has run."""
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
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class OpenAIRoute(JsonRoute):
    """A route whose errors are in OpenAI's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, which answers exceptions in OpenAI's form."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                wrong = fields_of(error)
                message = "; ".join(f"{field.at}: {field.problem}" for field in wrong)
                param = wrong[0].at.removeprefix("body.") if wrong else None
                return respond(400, message, "invalid_request", param=param)
            except Exception as error:  # noqa: BLE001 - the client reads one form only
                return answer(error, request.scope)

        return answered


def _respond_to(problem: Problem, headers: dict[str, str]) -> JSONResponse:
    code = problem.type.rpartition(":")[2].replace("-", "_")
    message = _NO_OPERATION if problem.status == 404 else problem.detail or problem.title
    return respond(problem.status, message, code, headers)


use_form("/openai/", _respond_to)


def answer(error: Exception, scope: Scope) -> Response:
    """The answer to a request that ended in an error."""
    problem, headers = logged_problem(error, scope)
    status = _STATUS.get(type(error), problem.status)
    says = str(error) if type(error) in _CODES else problem.detail or problem.title
    if problem.error_id is not None:
        says = f"{says} ({problem.error_id})"
    code = _CODES.get(type(error)) or problem.type.rpartition(":")[2].replace("-", "_")
    return respond(status, says, code, headers)


def failure(error: JsonObject | None) -> ErrorAnswer:
    """The error answer of a failed turn; the turn's error is safe to show to clients."""
    known = error or {"type": LangoError.__name__, "message": "The turn failed."}
    code = type_of(str(known["type"])).rpartition(":")[2].replace("-", "_")
    return ErrorAnswer(
        error=ErrorBody(message=str(known["message"]), type="server_error", code=code)
    )


def respond(
    status: int,
    message: str,
    code: str,
    headers: dict[str, str] | None = None,
    *,
    param: str | None = None,
) -> JSONResponse:
    """A response with an error in OpenAI's form."""
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    body = ErrorAnswer(error=ErrorBody(message=message, type=kind, param=param, code=code))
    return JSONResponse(storable_json(body.model_dump()), status, headers)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for the OpenAPI document."""
    return {
        status: {"description": HTTPStatus(status).phrase, "model": ErrorAnswer}
        for status in statuses
    }
