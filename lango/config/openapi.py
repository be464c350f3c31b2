"""The settings of web APIs whose operations are tools, `openapi_documents`."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network

from pydantic import Field, SecretStr, model_validator

from lango.config.secrets import SecretText
from lango.config.section import Section


class ApiAuthSettings(Section):
    """The credential of an API's calls, sent as the document says."""

    secret: SecretText | None = Field(
        default=None, description="The API key, token or password of all users."
    )
    username: str = Field(default="", description="With `secret`: for HTTP basic authentication.")
    header: str = Field(
        default="",
        description="With `secret`: the header that is the secret, whatever the document says.",
    )
    per_user: bool = Field(
        default=False, description="Whether each user is asked for a key, token or password."
    )
    client_id: str = Field(
        default="", description="The OAuth client with which each user consents."
    )
    client_secret: SecretText | None = Field(default=None, description="The secret of that client.")
    authorization_url: str = Field(
        default="", description="Where users consent; by default the document's."
    )
    token_url: str = Field(
        default="", description="Where codes become tokens; by default the document's."
    )

    @model_validator(mode="after")
    def _one_owner(self) -> ApiAuthSettings:
        if (self.secret is None) == (not (self.per_user or self.client_id)):
            raise ValueError("give either `secret`, or `per_user` or `client_id`")
        return self


class OpenApiSettings(Section):
    """An OpenAPI 3 document of an API, whose operations are tools."""

    file: str | None = Field(default=None, description="The document, as JSON or YAML.")
    url: str | None = Field(default=None, description="Where the document is, instead of a file.")
    base_url: str | None = Field(
        default=None, description="Where calls go; null: the document's first server."
    )
    operations: list[str] | None = Field(
        default=None, description="The `operationId`s to offer to models; null for all it has."
    )
    require_confirmation: bool | list[str] = Field(
        default=False,
        description="Operations that ask a person first: true for all, or their `operationId`s.",
    )
    auth: ApiAuthSettings | None = Field(default=None, description="The credential of its calls.")
    networks: list[IPv4Network | IPv6Network] = Field(
        default_factory=list[IPv4Network | IPv6Network],
        description="Networks it may be in although they are not public: `10.1.0.0/16`.",
    )
    timeout: float = Field(
        default=30.0, gt=0, description="Seconds a call may take; fetching the document, too."
    )
    prefix: str = Field(default="", description="The prefix of its tools' names.")

    @model_validator(mode="after")
    def _one_source(self) -> OpenApiSettings:
        if (self.file is None) == (self.url is None):
            raise ValueError("give either `file` or `url`, not both")
        return self

    def secrets(self) -> Iterator[tuple[str, SecretStr | None]]:
        """Its secrets, by their keys."""
        if self.auth is not None:
            yield "auth.secret", self.auth.secret
            yield "auth.client_secret", self.auth.client_secret
