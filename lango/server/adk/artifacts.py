"""Artifacts in ADK's API. Names may contain a slash, so the routes of versions come first."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Path, Query

from lango.adk.api.artifacts import ArtifactApi, read_artifact
from lango.server.adk.errors import AdkRoute, responses
from lango.server.adk.schemas import AdkArtifactRequest
from lango.server.adk.users import PathUser, SessionName
from lango.server.auth.callers import SECURED
from lango.server.backend import Served
from lango.server.http.problems import responses as problems
from lango.server.routes.schemas import Number

_ARTIFACTS: Final = "/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts"
_ARTIFACT: Final = f"{_ARTIFACTS}/{{artifact_name:path}}"
_LATEST: Final = "latest"

router = APIRouter(
    tags=["adk"],
    dependencies=SECURED,
    route_class=AdkRoute,
    responses=responses(400, 401, 403, 404, 422, 429, 503) | problems(421),
)


async def session_artifacts(user: PathUser, session_id: SessionName) -> ArtifactApi:
    """The artifacts of the session in the path."""
    return user.artifacts(session_id)


async def path_version(
    version_id: Annotated[str, Path(description="A number, or `latest`.")],
) -> int | None:
    """The version in the path; None for the newest."""
    if version_id == _LATEST:
        return None
    if not version_id.isascii() or not version_id.isdecimal() or len(version_id) > 18:
        raise HTTPException(422, "Invalid version ID")
    return int(version_id)


Artifacts = Annotated[ArtifactApi, Depends(session_artifacts)]
ArtifactName = Annotated[str, Path(description="The artifact's name.")]
Version = Annotated[int | None, Depends(path_version)]


@router.get(f"{_ARTIFACT}/versions/{{version_id}}/metadata")
async def adk_get_artifact_metadata(
    artifacts: Artifacts, artifact_name: ArtifactName, version: Version
) -> dict[str, Any]:
    """The metadata of a version."""
    metadata = await artifacts.metadata(artifact_name, version)
    if metadata is None:
        raise HTTPException(404, "Artifact version not found")
    return metadata


@router.get(f"{_ARTIFACT}/versions/metadata")
async def adk_list_artifact_metadata(
    artifacts: Artifacts, artifact_name: ArtifactName
) -> list[dict[str, Any]]:
    """The metadata of each version."""
    return await artifacts.all_metadata(artifact_name)


@router.get(f"{_ARTIFACT}/versions/{{version_id}}")
async def adk_load_artifact_version(
    artifacts: Artifacts, artifact_name: ArtifactName, version: Version
) -> dict[str, Any]:
    """One version of an artifact."""
    return await _loaded(artifacts, artifact_name, version)


@router.get(f"{_ARTIFACT}/versions")
async def adk_list_artifact_versions(
    artifacts: Artifacts, artifact_name: ArtifactName
) -> list[int]:
    """The numbers of an artifact's versions."""
    return await artifacts.versions(artifact_name)


@router.get(_ARTIFACTS)
async def adk_list_artifacts(artifacts: Artifacts) -> list[str]:
    """The names of the session's artifacts, and of those that the user's sessions share."""
    return await artifacts.names()


@router.post(_ARTIFACTS, responses=responses(413, 415))
async def adk_save_artifact(
    artifacts: Artifacts, user: PathUser, served: Served, new: AdkArtifactRequest
) -> dict[str, Any]:
    """Save a new version of an artifact."""
    artifact = read_artifact(new.artifact, new.custom_metadata, served.options.files)
    await served.quotas.take_bytes(user.caller.tenant, artifact.size)
    metadata = await artifacts.save(new.filename, artifact)
    if metadata is None:
        raise HTTPException(404, "Artifact version not found")
    return metadata


@router.get(_ARTIFACT)
async def adk_load_artifact(
    artifacts: Artifacts,
    artifact_name: ArtifactName,
    version: Annotated[Number | None, Query(description="Else it is the newest.")] = None,
) -> dict[str, Any]:
    """An artifact, by default its newest version."""
    return await _loaded(artifacts, artifact_name, version)


@router.delete(_ARTIFACT)
async def adk_delete_artifact(artifacts: Artifacts, artifact_name: ArtifactName) -> None:
    """Delete an artifact with all its versions."""
    await artifacts.delete(artifact_name)


async def _loaded(artifacts: ArtifactApi, name: str, version: int | None) -> dict[str, Any]:
    part = await artifacts.load(name, version)
    if part is None:
        raise HTTPException(404, "Artifact not found")
    return part
