"""Bodies of ADK's API: camelCase, and as in ADK's own server unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from lango.adk.api.contents import check_content
from lango.adk.api.restored import MAX_EVENTS
from lango.server.routes.schemas import Id


class AdkBody(BaseModel):
    """A body of ADK's API."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class AdkRunRequest(AdkBody):
    """A message for an agent."""

    app_name: Id | None = None
    user_id: Id
    session_id: Id
    new_message: Annotated[dict[str, Any], AfterValidator(check_content)] | None = Field(
        default=None, description="A `Content` of google.genai: `{role, parts}`."
    )
    streaming: bool = Field(default=False, description="Whether to send partial events as well.")
    state_delta: dict[str, Any] | None = None
    function_call_event_id: str | None = None
    invocation_id: str | None = None
    custom_metadata: dict[str, Any] | None = None
    service_tier: str | None = None


class AdkSessionRequest(AdkBody):
    """A session to create."""

    session_id: Id | None = None
    state: dict[str, Any] | None = None
    events: list[dict[str, Any]] | None = Field(
        default=None,
        max_length=MAX_EVENTS,
        description="Earlier events, of a session that is restored.",
    )
    options: dict[str, Any] | None = None


class AdkStateRequest(AdkBody):
    """A change of a session's state."""

    state_delta: dict[str, Any]


class AdkArtifactRequest(AdkBody):
    """An artifact to save."""

    filename: str
    artifact: dict[str, Any] = Field(description="A `Part` of google.genai.")
    custom_metadata: dict[str, Any] | None = None
