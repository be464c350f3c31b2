"""The keys of `lango.yaml`. docs/reference/configuration.md describes each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lango.config.secrets import Secret, SecretText, SecretUrl, has_password
from lango.core.loopback import is_private_way
from lango.core.messages.file_types import FILE_TYPES
from lango.core.redaction import is_sensitive

DEFAULT_STORE = "sqlite:///lango.db"
DATABASE = "database"  # the bus and the engine that need nothing else
RESERVED_NAME = "user"
"""ADK's name for the user; no agent can have it."""


class Section(BaseModel):
    """A part of the file; a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", validate_default=True)


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

    @property
    def full_url(self) -> str:
        """The URL with `pooled` and `direct_url` as its parameters, where these are set."""
        url = self.url.get_secret_value()
        options = {"pooled": "true"} if self.pooled else {}
        if self.direct_url is not None:
            options["direct_url"] = self.direct_url.get_secret_value()
        return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}" if options else url


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


class McpServerSettings(Section):
    """An MCP server: a command to run, or a URL to call."""

    command: list[str] | None = Field(
        default=None, min_length=1, description="The program and its arguments (stdio)."
    )
    env: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr], description="Its environment variables."
    )
    cwd: str | None = Field(default=None, description="The folder it runs in.")
    url: str | None = Field(default=None, description="Its URL (streamable HTTP).")
    headers: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr], description="Headers sent with each request."
    )
    tools: list[str] | None = Field(
        default=None, description="The tools to offer to models; null for all it has."
    )
    require_confirmation: bool | list[str] = Field(
        default=False, description="Tools that ask a person first: true for all, or their names."
    )
    timeout: float = Field(
        default=30.0, gt=0, description="Seconds a call may take; connecting and listing, too."
    )
    prefix: str = Field(default="", description="The prefix of its tools' names.")

    @model_validator(mode="after")
    def _one_way(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either `command` (a program to run) or `url`, not both")
        return self


class ToolSettings(Section):
    """A tool with options of its own."""

    model_config = ConfigDict(extra="allow")

    use: str = Field(description="builtin:NAME or package.module:attribute")

    @property
    def options(self) -> dict[str, Any]:
        """The keys other than `use`; the tool validates them."""
        return dict(self.model_extra or {})


def _by_name(value: Any) -> Any:
    """Expand the short form of a tool without options, its name alone."""
    return {"use": value} if isinstance(value, str) else value


ToolItem = Annotated[
    ToolSettings, BeforeValidator(_by_name, json_schema_input_type=str | ToolSettings)
]


class AgentSettings(Section):
    """An agent that this file describes."""

    name: str | None = Field(
        default=None, description="An identifier; by default the name it stands under."
    )
    description: str = Field(
        default="", description="Its purpose, for agents that may transfer to it."
    )
    model: str = Field(description="provider:name, such as openai:gpt-5 or scripted:demo")
    fallbacks: list[str] = Field(
        default_factory=list[str], description="Models to use, in order, when that one fails."
    )
    instruction: str = Field(default="", description="The system instruction.")
    temperature: float | None = Field(default=None, ge=0, description="Left to the model if null.")
    max_tokens: int | None = Field(default=None, ge=1, description="The most tokens of an answer.")
    context_window: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of the context window, for a model that lango does not know.",
    )
    tools: list[ToolItem] = Field(
        default_factory=list[ToolSettings],
        description="builtin:NAME or package.module:attribute, or those under `use` with options.",
    )
    mcp: list[str] = Field(
        default_factory=list[str], description="The MCP servers, by name, whose tools it has."
    )
    sub_agents: list[AgentSettings] = Field(
        default_factory=list["AgentSettings"], description="Agents it can hand over to."
    )

    def family(self) -> Iterator[AgentSettings]:
        """This agent and its sub-agents, recursively."""
        yield self
        for sub in self.sub_agents:
            yield from sub.family()


class AppSettings(Section):
    """One root agent and what goes with it: an agent written here, or ADK code."""

    agent: AgentSettings | None = Field(default=None, description="The agent, written here.")
    load: str | None = Field(
        default=None,
        description=(
            "package.module:attribute: an ADK agent, App, Workflow, or a function for one; or the "
            "folder of an agent, as `adk run` takes it."
        ),
    )
    next_turn: Literal["sticky", "root"] = Field(
        default="sticky",
        description="Which agent answers next: the last speaker (sticky), or always the root.",
    )

    @model_validator(mode="after")
    def _one_origin(self) -> AppSettings:
        if (self.agent is None) == (self.load is None):
            raise ValueError("give either `agent` (written here) or `load` (from code), not both")
        return self


def _loaded(value: Any) -> Any:
    """Expand the short form of an app: a text is code to load."""
    return {"load": value} if isinstance(value, str) else value


AppItem = Annotated[AppSettings, BeforeValidator(_loaded, json_schema_input_type=str | AppSettings)]


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


class ServerSettings(Section):
    """The HTTP server that `lango serve` starts."""

    host: str = Field(default="127.0.0.1", description="The address to serve on.")
    port: int = Field(default=8000, ge=0, le=65535, description="The port; 0 for any.")
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
        default=None, ge=1, description="Those of one tenant; null: four fifths of them."
    )
    max_streams_per_key: int | None = Field(
        default=None, ge=1, description="Those of one key or token's user; null: half of them."
    )
    files: FileSettings = Field(
        default_factory=FileSettings, description="Files that clients upload."
    )
    quotas: QuotaSettings = Field(
        default_factory=QuotaSettings, description="Quotas of one tenant."
    )
    access_log: bool = Field(
        default=False, description="Whether to log a line for each request, with its id."
    )
    openai_tasks: Literal["local", "turn"] = Field(
        default="local",
        description=(
            "Titles, tags and follow-up questions that chat front ends ask for: `local` answers "
            "them without the agent, `turn` makes each a turn."
        ),
    )
    oidc: OidcSettings | None = Field(
        default=None, description="An OpenID Connect issuer whose tokens the server accepts."
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
    history: HistorySettings = Field(
        default_factory=HistorySettings, description="The token budget of a conversation."
    )
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict[str, ProviderSettings],
        description="Keys and addresses of model providers, by name.",
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
    durability: Literal["normal", "strict"] = Field(
        default="normal",
        description="strict: refuse agents whose turns cannot resume after a crash.",
    )
    server: ServerSettings = Field(default_factory=ServerSettings, description="The HTTP server.")
    allow_literal_secrets: bool = Field(
        default=False, description="Allow literal secrets in the file; for tests."
    )

    @model_validator(mode="after")
    def _no_literal_secrets(self) -> Settings:
        if self.allow_literal_secrets:
            return self
        literal = [where for where, secret in self._secrets() if _is_literal(secret)]
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
                _check_names(item.agent, f"apps.{app}.agent", app, set())
        return self

    def _secrets(self) -> Iterator[tuple[str, SecretStr | None]]:
        for name, provider in self.providers.items():
            yield f"providers.{name}.api_key", provider.api_key
        urls = {
            "store.url": self.store.url,
            "store.direct_url": self.store.direct_url,
            "bus": self.bus,
            "engine": self.engine,
        }
        for where, url in urls.items():
            if url is not None and has_password(url.get_secret_value()):
                yield where, url
        for name, server in self.mcp_servers.items():
            for kind, values in (("env", server.env), ("headers", server.headers)):
                for key, secret in values.items():
                    if is_sensitive(key):
                        yield f"mcp_servers.{name}.{kind}.{key}", secret


def published_schema() -> str:
    """The JSON Schema of the file, for editors."""
    schema = Settings.model_json_schema(mode="validation")
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _check_names(agent: AgentSettings, where: str, default: str, taken: set[str]) -> None:
    """Check that each agent of a tree has a unique name that ADK accepts."""
    name = default if agent.name is None else agent.name
    if not name.isidentifier() or name == RESERVED_NAME:
        raise ValueError(
            f"{where}.name: {name!r} cannot name an agent; write letters, digits and underscores, "
            f"beginning with a letter, and not {RESERVED_NAME!r}"
        )
    if name in taken:
        raise ValueError(f"{where}.name: another agent of the app is called {name}")
    taken.add(name)
    for number, sub in enumerate(agent.sub_agents):
        _check_names(sub, f"{where}.sub_agents.{number}", "", taken)


def _is_literal(secret: SecretStr | None) -> bool:
    return isinstance(secret, Secret) and secret.literal
