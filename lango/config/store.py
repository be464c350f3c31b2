"""The settings of the database."""

from __future__ import annotations

from urllib.parse import urlencode

from pydantic import Field, SecretStr, model_validator

from lango.config.secrets import SecretUrl
from lango.config.section import Section
from lango.config.tls import TlsMode, with_tls

DEFAULT_STORE = "sqlite:///lango.db"


class StoreSettings(Section):
    """The database for sessions, turns, artifacts and records of model calls."""

    url: SecretUrl = Field(
        default=SecretStr(DEFAULT_STORE),
        description="postgresql://user@host/database or sqlite:///file.db",
        json_schema_extra={"default": DEFAULT_STORE},
    )
    db_schema: str | None = Field(
        default=None, alias="schema", description="The PostgreSQL schema that has lango's tables."
    )
    tenant: str = Field(default="", description="The tenant that local commands work as.")
    pool_size: int = Field(
        default=10, ge=1, description="Connections of a process for turns and appends."
    )
    pool_overflow: int = Field(
        default=5, ge=1, description="Connections of a process for all other work."
    )
    pool_timeout: float = Field(
        default=10.0,
        gt=0,
        description="Seconds to wait for a connection, or for other writers of the session.",
    )
    pooled: bool = Field(
        default=False, description="Whether the URL leads to PgBouncer in transaction mode."
    )
    direct_url: SecretUrl | None = Field(
        default=None,
        description="With `pooled`: the URL of the database itself, for notices and upgrades.",
    )

    tls: TlsMode | None = Field(
        default=None,
        description="TLS to PostgreSQL: verify-full also checks the server's certificate and name.",
    )
    tls_ca: str | None = Field(
        default=None,
        description="With `tls: verify-full`: the file with the CA that signed the certificate.",
    )

    @model_validator(mode="after")
    def _agree_about_tls(self) -> StoreSettings:
        """Check that the URLs do not contradict `tls` and `tls_ca`."""
        assert self.full_url  # noqa: S101 - reading it raises
        return self

    @property
    def full_url(self) -> str:
        """The URL with the other settings of the connection as its parameters."""
        url = with_tls(self.url.get_secret_value(), self.tls, self.tls_ca)
        options = {"pooled": "true"} if self.pooled else {}
        if self.direct_url is not None:
            direct = self.direct_url.get_secret_value()
            options["direct_url"] = with_tls(direct, self.tls, self.tls_ca)
        return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}" if options else url
