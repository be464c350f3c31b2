"""Errors in the form of ADK's API server: `{"detail": …}`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.types import Scope

from lango.core.values import JsonObject, storable_json
from lango.errors import InvalidIdError, SessionNotFoundError, UnknownAppError
from lango.server.http.answers import AnsweringRoute
from lango.server.http.problems import MAX_FIELDS, Problem, logged_problem, use_form

_STATUS: Final[dict[type[BaseException], int]] = {InvalidIdError: 400, UnknownAppError: 404}
"""Statuses that differ from those of /v1."""
_DETAILS: Final[dict[type[BaseException], str]] = {
    SessionNotFoundError: "Session not found",
    UnknownAppError: "Agent not found. GET list-apps lists those that are served.",
}
_PATHS: Final = ("apps/", "list-apps", "run", "version")


class ErrorDetail(BaseModel):
    """An error in the form of ADK's API server."""

    detail: Any


class AdkRoute(AnsweringRoute):
    """A route whose errors are in the form of ADK's API server."""

    may_lack_body = True

    def answer(self, error: Exception, scope: Scope) -> Response:
        """The answer in ADK's form."""
        if isinstance(error, RequestValidationError):
            problems = [
                {name: detail[name] for name in ("type", "loc", "msg")}
                for detail in error.errors()[:MAX_FIELDS]
            ]
            return respond(422, problems)
        if isinstance(error, HTTPException):
            return respond(error.status_code, error.detail, dict(error.headers or {}))
        return _answer(error, scope)


def use_adk_form(app: FastAPI, prefix: str) -> None:
    """Answer all problems below these routes in ADK's form, also those of unknown paths."""
    for path in ("",) if prefix else _PATHS:
        use_form(app, f"{prefix}/{path}", _respond_to)


def _respond_to(problem: Problem, headers: dict[str, str]) -> JSONResponse:
    return respond(problem.status, problem.detail or problem.title, headers)


def _answer(error: Exception, scope: Scope) -> Response:
    problem, headers = logged_problem(error, scope)
    kinds = type(error).__mro__
    status = next((_STATUS[kind] for kind in kinds if kind in _STATUS), problem.status)
    adk_detail = next((_DETAILS[kind] for kind in kinds if kind in _DETAILS), None)
    detail = adk_detail or problem.detail or problem.title
    if problem.error_id is not None:
        detail = f"{detail} ({problem.error_id})"
    return respond(status, detail, headers)


def failure(error: JsonObject) -> str:
    """The text of a failed turn's error; the turn's error is safe to show to clients."""
    known_by = f" ({error['error_id']})" if error.get("error_id") else ""
    return f"{error['type']}: {error['message']}{known_by}"


def respond(status: int, detail: Any, headers: dict[str, str] | None = None) -> JSONResponse:
    """A response with an error in ADK's form."""
    return JSONResponse(storable_json({"detail": detail}), status, headers)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an operation, for the OpenAPI document."""
    return {
        status: {"description": HTTPStatus(status).phrase, "model": ErrorDetail}
        for status in statuses
    }
