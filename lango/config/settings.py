"""The keys of `lango.yaml`. docs/reference/configuration.md describes each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lango.config.apps import AppItem, AppSettings, check_names
from lango.config.files import FileStoreSettings
from lango.config.mcp import McpServerSettings
from lango.config.metrics import MetricsSettings
from lango.config.openapi import OpenApiSettings
from lango.config.secrets import Secret, SecretText, SecretUrl, has_password
from lango.config.section import Section
from lango.config.server import ServerSettings
from lango.config.store import StoreSettings
from lango.config.telemetry import TelemetrySettings
from lango.core.redaction import is_sensitive

DATABASE = "database"  # the bus and the engine that need nothing else


class HistorySettings(Section):
    """How much of a conversation a request to a model contains."""

    token_budget: int | None = Field(
        default=32_000,
        ge=1,
        description="Tokens of messages in a request; null: as many as fit the model's window.",
    )


class ProviderSettings(Section):
    """The key and base URL of a provider, for the agents that this file describes.

    They take precedence over the provider's environment variables. A model that code creates does
    not read them: it takes its own `api_key` and `base_url`, or those of the environment.
    """

    api_key: SecretText | None = Field(
        default=None, description="The key, as `${NAME}` or `${file:path}`."
    )
    base_url: str | None = Field(
        default=None, description="The base URL; null: the provider's default."
    )


class LimitSettings(Section):
    """Limits of one turn; a turn that exceeds one fails. null: no limit."""

    model_calls: int | None = Field(default=100, ge=1, description="Calls of models.")
    tool_calls: int | None = Field(default=200, ge=1, description="Calls of tools.")
    tokens: int | None = Field(default=None, ge=1, description="Tokens, in and out.")
    cost: float | None = Field(default=None, gt=0, description="US dollars.")
    identical_calls: int = Field(
        default=3, ge=2, description="The same tool call with the same arguments, in a row."
    )


class WorkerSettings(Section):
    """How workers run turns."""

    concurrency: int = Field(
        default=100,
        ge=1,
        description="Concurrent turns, and a quarter more for tenants that have few running.",
    )
    hang_after: float = Field(
        default=30.0,
        gt=0,
        description="Seconds after which others take over the turns of a blocked event loop.",
    )
    drain: float = Field(
        default=30.0, ge=0, description="Seconds that turns have to end when a process stops."
    )
    event_retention_seconds: float = Field(
        default=86_400.0, gt=0, description="Seconds that the events of a finished turn are kept."
    )


class CredentialSettings(Section):
    """The credentials of users that tools ask for, such as OAuth tokens."""

    keys: list[SecretText] = Field(
        default_factory=list[SecretStr],
        description=(
            "Keys that encrypt them, each 32 bytes in base64, as `${NAME}` or `${file:path}`. The "
            "first one encrypts, all decrypt. Empty: tools cannot ask for credentials."
        ),
    )


class Settings(BaseSettings):
    """The keys of `lango.yaml`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        env_prefix="LANGO_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        validate_default=True,
        title="lango.yaml",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the arguments: `lango.config.load` has read the other sources."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    apps: dict[str, AppItem] = Field(
        default_factory=dict[str, AppSettings],
        description="The agents to run, by app name; a text is short for `load`.",
    )
    store: StoreSettings = Field(default_factory=StoreSettings, description="The database.")
    files: FileStoreSettings = Field(
        default_factory=FileStoreSettings, description="Where the bytes of files are kept."
    )
    history: HistorySettings = Field(
        default_factory=HistorySettings, description="The token budget of a conversation."
    )
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict[str, ProviderSettings],
        description="Keys and addresses of model providers, by name.",
    )
    openapi_documents: dict[str, OpenApiSettings] = Field(
        default_factory=dict[str, OpenApiSettings],
        description="OpenAPI documents of APIs whose operations agents can have as tools.",
    )
    mcp_servers: dict[str, McpServerSettings] = Field(
        default_factory=dict[str, McpServerSettings], description="MCP servers, by name."
    )
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Limits of a turn.")
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description="Running turns.")
    bus: SecretUrl = Field(
        default=SecretStr(DATABASE),
        description=(
            "What carries wake-ups and streamed text between processes: database, "
            "nats://host:4222 or redis://host:6379."
        ),
        json_schema_extra={"default": DATABASE},
    )
    engine: SecretUrl = Field(
        default=SecretStr(DATABASE),
        description=(
            "What brings turns to workers: database, or temporal://host:7233/namespace "
            "(temporals:// with TLS)."
        ),
        json_schema_extra={"default": DATABASE},
    )
    credentials: CredentialSettings = Field(
        default_factory=CredentialSettings, description="Credentials of users for tools."
    )
    durability: Literal["normal", "strict"] = Field(
        default="normal",
        description="strict: refuse agents whose turns cannot resume after a crash.",
    )
    server: ServerSettings = Field(default_factory=ServerSettings, description="The HTTP server.")
    metrics: MetricsSettings = Field(
        default_factory=MetricsSettings, description="Metrics for Prometheus."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="How `lango serve`, `worker` and `dev` write their log."
    )
    telemetry: TelemetrySettings = Field(
        default_factory=TelemetrySettings, description="Traces of turns, by OpenTelemetry."
    )
    allow_literal_secrets: bool = Field(
        default=False, description="Allow literal secrets in the file; for tests."
    )

    @model_validator(mode="after")
    def _no_literal_secrets(self) -> Settings:
        if self.allow_literal_secrets:
            return self
        literal = [path for path, secret in self._secrets() if _is_literal(secret)]
        if literal:
            raise ValueError(
                f"{', '.join(literal)}: a secret does not belong in this file; write ${{NAME}} for "
                "an environment variable or ${file:path} for a file that holds it"
            )
        return self

    @model_validator(mode="after")
    def _good_agent_names(self) -> Settings:
        for app, item in self.apps.items():
            if item.agent is not None:
                check_names(item.agent, f"apps.{app}.agent", app, set())
        return self

    @model_validator(mode="after")
    def _summaries_before_cuts(self) -> Settings:
        budget = self.history.token_budget
        for app, item in self.apps.items():
            tokens = item.compaction.tokens if item.compaction else None
            if tokens is not None and budget is not None and tokens >= budget:
                raise ValueError(
                    f"apps.{app}.compaction.tokens must be below history.token_budget, {budget:,}: "
                    "no request has more messages than that"
                )
        return self

    def _secrets(self) -> Iterator[tuple[str, SecretStr | None]]:
        for name, provider in self.providers.items():
            yield f"providers.{name}.api_key", provider.api_key
        for name, header in self.telemetry.headers.items():
            yield f"telemetry.headers.{name}", header
        for number, key in enumerate(self.credentials.keys):
            yield f"credentials.keys[{number}]", key
        urls = {
            "store.url": self.store.url,
            "store.direct_url": self.store.direct_url,
            "bus": self.bus,
            "engine": self.engine,
        }
        for path, url in urls.items():
            if url is not None and has_password(url.get_secret_value()):
                yield path, url
        yield from self._tool_secrets()

    def _tool_secrets(self) -> Iterator[tuple[str, SecretStr | None]]:
        for name, document in self.openapi_documents.items():
            for key, secret in document.secrets():
                yield f"openapi_documents.{name}.{key}", secret
        for name, server in self.mcp_servers.items():
            for kind, values in (("env", server.env), ("headers", server.headers)):
                for key, secret in values.items():
                    if is_sensitive(key):
                        yield f"mcp_servers.{name}.{kind}.{key}", secret


def published_schema() -> str:
    """The JSON Schema of the file, for editors."""
    schema = Settings.model_json_schema(mode="validation")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _is_literal(secret: SecretStr | None) -> bool:
    return isinstance(secret, Secret) and secret.literal
