"""Artifacts as ADK's API server reads and writes them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from google.adk.artifacts.base_artifact_service import ArtifactVersion
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from pydantic import BaseModel, ValidationError

from lango.adk.api.contents import FileLimits, checked_size, problems_of
from lango.adk.artifacts import SqlArtifactService
from lango.core.values import JsonObject, json_text
from lango.errors import BodyTooLargeError, UnsupportedRequestError
from lango.store.sessions.store import SqlSessionStore

MAX_BESIDE: Final = 16_384
"""Bytes of JSON beside an artifact's data: of what is stored, the quota counts only the data."""
_STORED: Final = frozenset({"inline_data", "file_data"})  # besides a text


@dataclass(frozen=True, slots=True)
class ReadArtifact:
    """A part to save, its metadata, and the bytes of both."""

    part: types.Part
    metadata: JsonObject | None
    size: int


class ArtifactApi:
    """The artifacts of one session, and those that its user's sessions share."""

    def __init__(
        self, store: SqlSessionStore, tenant: str, app: str, user: str, session: str
    ) -> None:
        self._service = SqlArtifactService(store, tenant=tenant, requires_session=True)
        self._of = {"app_name": app, "user_id": user, "session_id": session}

    async def names(self) -> list[str]:
        """The names of the artifacts."""
        return await self._service.list_artifact_keys(**self._of)

    async def load(self, name: str, version: int | None) -> JsonObject | None:
        """An artifact as a part, by default its newest version; None if there is none."""
        with _as_refusals():
            part = await self._service.load_artifact(**self._of, filename=name, version=version)
        return None if part is None else _json(part)

    async def versions(self, name: str) -> list[int]:
        """The numbers of an artifact's versions."""
        return await self._service.list_versions(**self._of, filename=name)

    async def all_metadata(self, name: str) -> list[JsonObject]:
        """The metadata of each version."""
        versions = await self._service.list_artifact_versions(**self._of, filename=name)
        return [_json(version) for version in versions]

    async def metadata(self, name: str, version: int | None) -> JsonObject | None:
        """The metadata of a version, by default the newest; None if there is none."""
        artifact = await self._version(name, version)
        return None if artifact is None else _json(artifact)

    async def save(self, name: str, new: ReadArtifact) -> JsonObject | None:
        """Save a new version, and return its metadata."""
        with _as_refusals():
            version = await self._service.save_artifact(
                **self._of, filename=name, artifact=new.part, custom_metadata=new.metadata
            )
        return await self.metadata(name, version)

    async def delete(self, name: str) -> None:
        """Delete an artifact with all its versions, if it exists."""
        await self._service.delete_artifact(**self._of, filename=name)

    async def _version(self, name: str, version: int | None) -> ArtifactVersion | None:
        return await self._service.get_artifact_version(**self._of, filename=name, version=version)


def read_artifact(data: JsonObject, about: JsonObject | None, files: FileLimits) -> ReadArtifact:
    """The part and metadata of a request; UnsupportedRequestError if they cannot be stored.

    MediaTypeError or BodyTooLargeError for data that is not within the limits of files.
    """
    try:
        part = types.Part.model_validate_json(json_text(data))
    except ValidationError as error:
        raise UnsupportedRequestError(f"artifact.{problems_of(error)}") from None
    other_fields = part.model_dump(
        mode="json", exclude_none=True, exclude={"text": True, "inline_data": {"data"}}
    )
    if not other_fields.keys() <= _STORED:
        raise UnsupportedRequestError("An artifact has one of text, inlineData, fileData.")
    size = checked_size(part, files) + len((part.text or "").encode())
    beside_size = len(json_text([other_fields, about]).encode())
    if beside_size > MAX_BESIDE:
        raise BodyTooLargeError(
            f"customMetadata and the fields beside the data may have {MAX_BESIDE} bytes together."
        )
    return ReadArtifact(part, about, size + beside_size)


@contextmanager
def _as_refusals() -> Generator[None]:
    """Raise what ADK refuses, such as a reference to itself, as UnsupportedRequestError."""
    try:
        yield
    except InputValidationError as error:
        raise UnsupportedRequestError(str(error)) from error


def _json(model: BaseModel) -> JsonObject:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
