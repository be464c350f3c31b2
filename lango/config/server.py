"""The settings of the HTTP server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from lango.config.section import Section
from lango.core.loopback import is_private_way
from lango.core.messages.file_types import FILE_TYPES


class CallerLimitSettings(Section):
    """Limits of each user; null: no limit."""

    requests: int | None = Field(default=None, ge=1, description="Requests in a minute.")
    turns: int | None = Field(
        default=None, ge=1, description="Turns that are scheduled, queued or running."
    )
    cost: float | None = Field(default=None, gt=0, description="US dollars in a day (UTC).")


class OidcSettings(Section):
    """An OpenID Connect issuer whose tokens the server accepts, beside its API keys."""

    issuer: str = Field(description="Its URL, the `iss` claim of its tokens.")
    audience: str | list[str] = Field(description="The accepted `aud` claims of a token.")
    jwks_url: str | None = Field(
        default=None, description="The URL of its keys, if its discovery document has none."
    )
    tenant_claim: str | None = Field(
        default=None, description="The claim that names the tenant; null for `tenant`."
    )
    tenant: str = Field(default="", description="The tenant of all its tokens.")
    user_claim: str = Field(default="sub", description="The claim that names the user.")
    scopes_claim: str | None = Field(
        default=None, description="The claim that lists scopes; null: every token may chat."
    )
    leeway: int = Field(
        default=60, ge=0, le=600, description="Seconds that its clock may differ from ours."
    )
    limits: CallerLimitSettings = Field(
        default_factory=CallerLimitSettings, description="Limits of each user of a token."
    )

    @property
    def audiences(self) -> list[str]:
        """The accepted audiences of a token."""
        return [self.audience] if isinstance(self.audience, str) else self.audience

    @model_validator(mode="after")
    def _can_be_trusted(self) -> OidcSettings:
        for url in filter(None, (self.issuer, self.jwks_url)):
            if not is_private_way(url):
                raise ValueError(f"{url} must begin with https://")
        if not self.audiences or not all(self.audiences):
            raise ValueError("`audience` is required: a token for another service must be refused")
        if self.tenant and self.tenant_claim:
            raise ValueError("give either `tenant` (of all) or `tenant_claim`, not both")
        return self


class FileSettings(Section):
    """The files that clients may upload."""

    max_bytes: int = Field(default=32 << 20, ge=1, description="Bytes of one file.")
    types: list[str] = Field(
        default_factory=lambda: list(FILE_TYPES), description="The accepted media types."
    )


class QuotaSettings(Section):
    """Quotas of one tenant in the database; null: no quota."""

    open_turns: int | None = Field(
        default=10_000, ge=1, description="Turns that are scheduled, queued or running."
    )
    file_bytes: int | None = Field(
        default=10 << 30, ge=1, description="Bytes of files and other artifacts, all versions."
    )
    history_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Estimated tokens of all messages and tool results, about four bytes each.",
    )


AdkRoutes = Literal["off", "/adk", "/"]


def _off(value: Any) -> Any:
    """Take `off` as the text that it is in YAML 1.2; PyYAML reads it as false."""
    return "off" if value is False else value


AdkRoutesItem = Annotated[AdkRoutes, BeforeValidator(_off, json_schema_input_type=AdkRoutes)]


class ServerSettings(Section):
    """The HTTP server that `lango serve` starts."""

    host: str = Field(default="127.0.0.1", description="The address to serve on.")
    port: int = Field(default=8000, ge=0, le=65535, description="The port; 0 for any.")
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s?#]+$",
        description="Its address for browsers, to which OAuth providers send them back.",
    )
    allowed_hosts: list[str] = Field(
        default_factory=list[str],
        description="Host names it serves beside localhost: `*.example.com`, `*` for any.",
    )
    trusted_proxies: list[str] = Field(
        default_factory=list[str],
        description="Addresses or networks of proxies whose `X-Forwarded-For` names the client.",
    )
    max_body: int = Field(default=1 << 20, ge=1024, description="Bytes of JSON in a request.")
    max_streams: int = Field(
        default=1000, ge=1, description="Concurrent event streams of each process."
    )
    max_streams_per_tenant: int | None = Field(
        default=None, ge=1, description="Streams of one tenant; null: four fifths of `max_streams`."
    )
    max_streams_per_key: int | None = Field(
        default=None, ge=1, description="Streams of one key or token's user; null: half of those."
    )
    files: FileSettings = Field(
        default_factory=FileSettings, description="Files that clients upload."
    )
    quotas: QuotaSettings = Field(
        default_factory=QuotaSettings, description="Quotas of one tenant."
    )
    access_log: bool = Field(
        default=False, description="Whether to log a line for each request, and two for each turn."
    )
    openai_tasks: Literal["local", "turn"] = Field(
        default="local",
        description=(
            "Titles, tags and follow-up questions that chat front ends ask for: `local` answers "
            "them without the agent, `turn` makes each a turn."
        ),
    )
    adk_routes: AdkRoutesItem = Field(
        default="off",
        description="Where ADK's own HTTP API is served, for front ends of ADK: `/adk`, or `/`.",
    )
    oidc: OidcSettings | None = Field(
        default=None, description="An OpenID Connect issuer whose tokens the server accepts."
    )
