"""The console: public static files, which get their data from the API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from mimetypes import guess_type
from typing import Final

from fastapi import FastAPI, Request, Response, status
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from lango.console import STATIC

PATH: Final = "/console"
_INDEX: Final = "index.html"
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
_HEADERS: Final = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # File names are the same in every version: browsers revalidate each time, and get 304.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A static file. Its ETag depends only on its content, so it is the same on every server."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{sha256(self.content).hexdigest()[:32]}"'


@cache
def _files() -> dict[str, _File]:
    """All files, in memory: they are small, and no path can escape the folder."""
    return {
        path.relative_to(STATIC).as_posix(): _File(
            path.read_bytes(), guess_type(path.name)[0] or "application/octet-stream"
        )
        for path in STATIC.rglob("*.*")
    }


async def _redirect_to_console() -> RedirectResponse:
    return RedirectResponse(f"{PATH[1:]}/", status.HTTP_307_TEMPORARY_REDIRECT)


async def _redirect_to_folder() -> RedirectResponse:
    # Relative, so that it works behind a proxy that adds a prefix.
    return RedirectResponse(f"{PATH[1:]}/", status.HTTP_308_PERMANENT_REDIRECT)


async def _file(request: Request, name: str) -> Response:
    file = _files().get(name or _INDEX)
    if file is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND)
    headers = _HEADERS | {"ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


def add_console(app: FastAPI) -> None:
    """Serve the console. `/` and `/console` redirect to `/console/`: its links are relative."""
    methods = ["GET", "HEAD"]
    app.add_api_route("/", _redirect_to_console, methods=methods, include_in_schema=False)
    app.add_api_route(PATH, _redirect_to_folder, methods=methods, include_in_schema=False)
    app.add_api_route(f"{PATH}/{{name:path}}", _file, methods=methods, include_in_schema=False)
