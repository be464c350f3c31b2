"""Files of sessions: uploaded and downloaded as raw bytes, a chunk at a time.

A body is the file itself, not a multipart form: the server checks and spools it as it comes, and
needs no parser.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field
from starlette.requests import ClientDisconnect

from lango.adk.artifacts import MAX_NAME
from lango.config.server import FileSettings
from lango.core.messages.file_types import FILE_TYPES, TypeCheck, declared_type
from lango.core.values import storable_text
from lango.errors import BodyTooLargeError, InvalidBodyError, MediaTypeError, UnknownFileError
from lango.server.auth.callers import SECURED
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute, refuse_encodings
from lango.server.http.problems import responses
from lango.server.http.ranges import requested_range
from lango.server.http.request_slots import release_slot
from lango.server.routes.schemas import File, FileName, FilePage, Number
from lango.server.routes.sessions import OwnSession, PageSize, SeenSession
from lango.store.files.contents import SpooledContent
from lango.store.files.uploads import NewFile, SqlFileStore, StoredFile

router = APIRouter(
    prefix="/v1/sessions",
    tags=["files"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)

_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": dict.fromkeys(FILE_TYPES, _BINARY)}
}
_DOWNLOAD: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes of the file.", "content": {"*/*": _BINARY}},
    206: {"description": "The bytes that `Range` names.", "content": {"*/*": _BINARY}},
    **responses(416),
}
_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_UNKNOWN: Final = "application/octet-stream"
# Longer than the name of an upload: tools name their artifacts themselves.
KeptName = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(storable_text)]


class Upload(SpooledContent):
    """A file being received: checked, and spooled to disk if large; deleted when the block ends.

    It is saved when it is complete: no transaction may wait for a client.
    """

    def __init__(self, declared: str, limits: FileSettings) -> None:
        super().__init__()
        self._most = limits.max_bytes
        self._check = TypeCheck(declared)

    async def receive(self, request: Request) -> None:
        """Receive the body of a request; BodyTooLargeError above the limit."""
        announced = request.headers.get("content-length", "")
        self._make_room(int(announced) if announced.isdecimal() else 0)
        try:
            async for piece in request.stream():
                self._add(piece)
        except ClientDisconnect as error:
            raise InvalidBodyError("The file broke off.") from error
        if not self.size:
            raise InvalidBodyError("The file is empty.")
        self._check.see(b"", last=True)

    def _add(self, piece: bytes) -> None:
        self._make_room(self.size + len(piece))
        self._check.see(piece)
        self.write(piece)

    def _make_room(self, size: int) -> None:
        if size > self._most:
            raise BodyTooLargeError(f"A file has {self._most} bytes at most here.")


@router.post(
    "/{session_id}/files",
    status_code=HTTPStatus.CREATED,
    responses=responses(400, 413, 415),
    openapi_extra=_UPLOAD,
)
async def upload_file(
    request: Request,
    response: Response,
    session: OwnSession,
    served: Served,
    name: Annotated[FileName, Query(description="What it is called in the session.")],
) -> File:
    """Upload a file to a session; an existing name gets a new version."""
    limits = served.options.files
    declared = declared_type(request.headers.get("content-type", ""))
    if declared not in limits.types:
        raise MediaTypeError(f"Set the Content-Type of the file: {', '.join(limits.types)}.")
    refuse_encodings(request)
    with Upload(declared, limits) as upload:
        release_slot(request)
        await upload.receive(request)
        await served.quotas.take_bytes(session.key.tenant, upload.size)
        file = await _files(served).save(
            session.key, NewFile(name, declared, upload), public_id=session.public_id
        )
    location = f"{router.prefix}/{session.public_id}/files/{quote(name, safe='')}"
    response.headers["Location"] = location
    return File.of(file)


@router.get("/{session_id}/files")
async def list_files(
    session: SeenSession,
    served: Served,
    after: Annotated[KeptName | None, Query(description="`next` of a page.")] = None,
    limit: PageSize = 50,
) -> FilePage:
    """A page of a session's files by name, uploaded or made by tools; only the newest versions."""
    files = await _files(served).page(session.key, after=after or "", limit=limit + 1)
    page = files[:limit]
    next_name = page[-1].name if len(files) > limit else None
    return FilePage(files=[File.of(file) for file in page], next=next_name)


@router.get(
    "/{session_id}/files/{name:path}", response_class=StreamingResponse, responses=_DOWNLOAD
)
async def get_file(
    session: SeenSession,
    request: Request,
    served: Served,
    name: Annotated[KeptName, Path(description="The file's `name`.")],
    version: Annotated[Number | None, Query(description="Else it is the newest.")] = None,
) -> StreamingResponse:
    """The bytes of a file, or those of one `Range`: an interrupted download can be continued.

    Send the `ETag` of the first part as `If-Range`.
    """
    files = _files(served)
    file = await files.find(session.key, name, version)
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    part = requested_range(request.headers, file.size, _etag(file))
    pieces = files.chunks(file, part.start, part.end)
    try:
        first = await anext(pieces)  # what goes wrong here is answered, and not broken off
    except UnknownFileError:
        raise HTTPException(HTTPStatus.NOT_FOUND) from None
    return StreamingResponse(
        _joined(first, pieces),
        part.status,
        _headers(file) | part.headers,
        _type(file),
    )


async def _joined(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


def _files(served: Served) -> SqlFileStore:
    return SqlFileStore(served.store.database)


def _headers(file: StoredFile) -> dict[str, str]:
    """Headers that make a browser save any file, and neither guess its type nor run it."""
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "ETag": _etag(file),
        "X-Content-Type-Options": "nosniff",
    }


def _etag(file: StoredFile) -> str:
    return f'"{file.sha256}"'


def _type(file: StoredFile) -> str:
    """The type of a file, if valid in a header: tools can set any type."""
    mime_type = file.mime_type or ""
    return mime_type if _TYPE.fullmatch(mime_type) else _UNKNOWN
