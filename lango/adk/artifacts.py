"""ADK's artifact service on the session store's database."""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import quote

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import (
    ArtifactVersion,
    BaseArtifactService,
    ensure_part,
)
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from lango.adk.errors import as_adk_errors
from lango.core.ids import check_id
from lango.core.values import storable_json
from lango.store.files.artifacts import SqlArtifactStore, StoredArtifact
from lango.store.files.rows import HIDDEN_TYPE, NewArtifact
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore

MAX_NAME: Final = 1024
MAX_REFERENCES: Final = 5
_USER_SCOPE: Final = "user:"


class SqlArtifactService(BaseArtifactService):
    """Artifacts beside the sessions: `store` is a session store or its URL.

    Set `requires_session` if the sessions are in the same store: an artifact of a missing or
    deleted session is then refused, and none outlives its session.
    """

    def __init__(
        self, store: SqlSessionStore | str, *, tenant: str = "", requires_session: bool = False
    ) -> None:
        self._owns_store = isinstance(store, str)
        self.store = SqlSessionStore(store) if isinstance(store, str) else store
        self.tenant = tenant
        self.requires_session = requires_session
        self._artifacts = SqlArtifactStore(self.store.database)

    async def close(self) -> None:
        """Close the connections, if this service opened the store."""
        if self._owns_store:
            await self.store.close()

    def _key(
        self, app_name: str, user_id: str, session_id: str | None, filename: str
    ) -> SessionKey:
        """The key of a file: its session, or its user if its name begins with `user:`."""
        check_id("artifact name", filename, MAX_NAME)
        if filename.startswith(_USER_SCOPE):
            return self._user_key(app_name, user_id)
        if session_id is None:
            raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
        return SessionKey(self.tenant, app_name, user_id, session_id).checked()

    def _user_key(self, app_name: str, user_id: str) -> SessionKey:
        check_id("app name", app_name)
        check_id("user id", user_id)
        return SessionKey(self.tenant, app_name, user_id, "")

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a new version; the first is 0."""
        part = ensure_part(artifact)
        key = self._key(app_name, user_id, session_id, filename)
        new = NewArtifact(
            name=filename,
            data=_payload(part),
            part=_without_payload(part),
            mime_type=_mime_type(part, app_name, user_id, session_id),
            metadata=storable_json(custom_metadata) if custom_metadata else None,
        )
        return await self._save(key, new)

    async def _save(self, key: SessionKey, new: NewArtifact) -> int:
        with as_adk_errors():
            return await self._artifacts.save(key, new, requires_session=self.requires_session)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """One version, by default the newest; None if a rewind removed it."""
        return await self._load(app_name, user_id, filename, session_id, version, MAX_REFERENCES)

    async def _load(
        self,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None,
        version: int | None,
        references: int,
    ) -> types.Part | None:
        key = self._key(app_name, user_id, session_id, filename)
        artifact = await self._artifacts.load(key, filename, version)
        if artifact is None:
            return None
        part = _part(artifact)
        if not artifact_util.is_artifact_ref(part):
            return None if _is_hidden(part) else part
        target = artifact_util.resolve_artifact_reference(
            file_uri=cast("types.FileData", part.file_data).file_uri or "",
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            remaining_depth=references,
        )
        return await self._load(
            target.app_name,
            target.user_id,
            target.filename,
            target.session_id,
            target.version,
            references - 1,
        )

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """The names a session can read: its own and its user's."""
        names = await self._artifacts.names(self._user_key(app_name, user_id))
        if session_id is not None:
            key = SessionKey(self.tenant, app_name, user_id, session_id).checked()
            names += await self._artifacts.names(key)
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions."""
        await self._artifacts.delete(self._key(app_name, user_id, session_id, filename), filename)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of an artifact's versions."""
        key = self._key(app_name, user_id, session_id, filename)
        return [artifact.version for artifact in await self._artifacts.versions(key, filename)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """The metadata of each version."""
        key = self._key(app_name, user_id, session_id, filename)
        return [
            _version(key, artifact) for artifact in await self._artifacts.versions(key, filename)
        ]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """The metadata of one version, by default the newest."""
        key = self._key(app_name, user_id, session_id, filename)
        artifact = await self._artifacts.load(key, filename, version, with_data=False)
        return None if artifact is None else _version(key, artifact)


def _payload(part: types.Part) -> bytes:
    """The bytes that are stored in chunks."""
    if part.inline_data is not None:
        return part.inline_data.data or b""
    return (part.text or "").encode("utf-8", "replace")


def _without_payload(part: types.Part) -> dict[str, Any]:
    exclude: Any = {"inline_data": {"data"}, "text": True}
    fields = part.model_dump(mode="json", exclude_none=True, exclude=exclude, warnings=False)
    if part.inline_data is not None:
        fields.setdefault("inline_data", {})
    return storable_json(
        fields | ({"text": ""} if part.text is not None and part.inline_data is None else {})
    )


def _part(artifact: StoredArtifact) -> types.Part:
    part = types.Part.model_validate(artifact.part)
    if part.inline_data is not None:
        part.inline_data.data = artifact.data
    elif part.text is not None:
        part.text = artifact.data.decode()
    return part


def _mime_type(part: types.Part, app_name: str, user_id: str, session_id: str | None) -> str | None:
    """The MIME type; None for a reference, which is not followed here."""
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError("Not supported artifact type.")
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    parsed = artifact_util.parse_artifact_uri(part.file_data.file_uri or "")
    if parsed is None:
        raise InputValidationError(f"Invalid artifact reference URI: {part.file_data.file_uri}")
    artifact_util.validate_artifact_reference_scope(
        app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=parsed
    )
    return None


def _is_hidden(part: types.Part) -> bool:
    """Whether this is the empty version that ADK's rewind saves over what it removes."""
    blob = part.inline_data
    return part == types.Part() or (
        blob is not None and not blob.data and blob.mime_type == HIDDEN_TYPE
    )


def _version(key: SessionKey, artifact: StoredArtifact) -> ArtifactVersion:
    app, user, name = (quote(text, safe="") for text in (key.app_name, key.user_id, artifact.name))
    session = f"sessions/{quote(key.session_id, safe='')}/" if key.session_id else ""
    return ArtifactVersion(
        version=artifact.version,
        canonical_uri=(
            f"lango://apps/{app}/users/{user}/{session}artifacts/{name}/versions/{artifact.version}"
        ),
        custom_metadata=artifact.metadata,
        create_time=artifact.created,
        mime_type=artifact.mime_type,
    )
