"""The composition root: creates the store, the agents and their parts from the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Self

from pydantic import SecretStr

from lango.adk.apps.build import llm_agent, named_tools
from lango.adk.apps.compaction import Compaction, compaction, summarizer_of
from lango.adk.apps.load import Root, agent_folder, agent_folders, folder_app_name, load_root
from lango.adk.mcp.settings import McpServer, mcp_toolset
from lango.adk.models.adapter import ModelAdapter
from lango.adk.openapi.settings import ApiAuth, OpenApiDocument, openapi_toolset
from lango.adk.plugins import plugins
from lango.adk.transfers import root_of
from lango.agent.agent import Agent
from lango.config.apps import AgentSettings, AppSettings
from lango.config.compaction import CompactionSettings
from lango.config.load import LoadedSettings
from lango.config.mcp import McpServerSettings
from lango.config.openapi import ApiAuthSettings, OpenApiSettings
from lango.config.settings import Settings
from lango.config.telemetry import TelemetrySettings
from lango.core.named_code import did_you_mean
from lango.errors import ConfigError
from lango.providers.embeddings import Embedder
from lango.providers.policy.retry import Policy
from lango.providers.registry import GATEWAYS, Access, resolve_embedder
from lango.store.sessions.store import SqlSessionStore
from lango.telemetry.tracing.current import tracer
from lango.telemetry.tracing.start import TraceOptions, start_tracing
from lango.turns.engine.choose import engine_of
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions


class Application:
    """Everything that the settings name, opened and closed together."""

    def __init__(self, loaded: LoadedSettings) -> None:
        self.settings = loaded.settings
        self._access = access_of(self.settings)
        store = self.settings.store
        self.store = SqlSessionStore(
            store.full_url,
            schema=store.db_schema,
            pool_size=store.pool_size,
            pool_overflow=store.pool_overflow,
            pool_timeout=store.pool_timeout,
            credential_keys=[key.get_secret_value() for key in self.settings.credentials.keys],
            public_url=self.settings.server.public_url,
            objects=self.settings.files.objects,
        )
        bus, engine = self.settings.bus, self.settings.engine
        self.engine = engine_of(
            engine.get_secret_value(), bus.get_secret_value(), self.store.database
        )
        self._max_concurrent_requests = max(
            Policy().max_concurrent_requests, self._worker_options.most
        )
        self._agents: dict[str, Agent] = {}
        self._models: list[ModelAdapter | Embedder] = []

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Turn traces on, open the store, and start to receive wake-ups of other processes."""
        start_tracing(trace_options(self.settings.telemetry))
        if self.store.database.objects is not None:
            self.store.database.objects.open()
        await self.store.open()
        await self.engine.open()

    async def close(self) -> None:
        """Close the agents, then their models and the store they write to."""
        for agent in self._agents.values():
            await agent.close()
        self._agents.clear()
        for model in self._models:
            await model.close()
        self._models.clear()
        await self.engine.close()
        await self.store.close()
        tracing = tracer()
        if tracing is not None:
            await asyncio.to_thread(tracing.flush)

    def turns_for(self, tenant: str) -> Turns:
        """The turns of a tenant, for clients that submit them."""
        return Turns(self.store, self.engine, tenant=tenant)

    @property
    def turns(self) -> Turns:
        """The turns of the tenant that the settings name."""
        return self.turns_for(self.settings.store.tenant)

    async def agents(self, names: Iterable[str] = ()) -> list[Agent]:
        """The agents of these apps (default: all in the settings); ConfigError without any."""
        return [await self.agent(name) for name in self.app_names(names)]

    def app_names(self, names: Iterable[str] = ()) -> list[str]:
        """The names of these apps (default: all in the settings); ConfigError without any."""
        return [self.app_name(name) for name in names or self.settings.apps or (None,)]

    async def worker(
        self, names: Iterable[str] = (), *, concurrency: int | None = None
    ) -> TurnWorker:
        """A worker, not started, for the turns of these apps (default: all in the settings)."""
        options = self._worker_options
        if concurrency is not None:
            options = replace(options, concurrency=concurrency)
        self._max_concurrent_requests = max(
            self._max_concurrent_requests, options.most
        )  # no turn has to wait for a slot
        agents = await self.agents(names)
        apps = {agent.runner.app.name: agent.durable for agent in agents if agent.durable}
        return TurnWorker(self.store, self.engine, apps, options)

    @property
    def _worker_options(self) -> WorkerOptions:
        worker = self.settings.worker
        return WorkerOptions(
            worker.concurrency, worker.hang_after, worker.event_retention_seconds, worker.drain
        )

    def app_name(self, name: str | None) -> str:
        """The name of an app; the default is the only app, if there is just one."""
        apps = self.settings.apps
        if name is None and len(apps) == 1:
            return next(iter(apps))
        if name is not None and (name in apps or ":" in name or agent_folder(name)):
            return name
        raise ConfigError(_unknown_app(name, list(apps)))

    async def agent(self, name: str | None = None) -> Agent:
        """The agent of an app in the settings, or of code named as package.module:attribute."""
        app = self.app_name(name)
        if app not in self._agents:
            self._agents[app] = await self._made(app)
        return self._agents[app]

    async def _made(self, name: str) -> Agent:
        app = self.settings.apps.get(name) or AppSettings(load=name)
        limits = self.settings.limits
        root = await self._root(name, app)
        agent = Agent(
            root,
            store=self.store,
            tenant=self.settings.store.tenant,
            app_name=name if name in self.settings.apps else folder_app_name(name, root),
            plugins=plugins(
                self.store,
                tenant=self.settings.store.tenant,
                token_budget=self.settings.history.token_budget,
                model_calls=limits.model_calls,
                tool_calls=limits.tool_calls,
                tokens=limits.tokens,
                cost=limits.cost,
                repeats=limits.identical_calls,
            ),
            next_turn=app.next_turn,
            token_budget=self.settings.history.token_budget,
            memory=bool(app.memory),
            embeddings=self.embedder(app),
            compaction=self._compaction(root, app.compaction),
            engine=self.engine,
            worker=self._worker_options,
        )
        if self.settings.durability == "strict":
            _require_exact(name, agent)
        return agent

    def _compaction(self, root: Root, spec: CompactionSettings | None) -> Compaction | None:
        if spec is None:
            return None
        model = None if spec.model is None else self.model(AgentSettings(model=spec.model))
        return compaction(
            summarizer_of(root_of(root), model, spec.prompt),
            turns=spec.turns,
            overlap=spec.overlap,
            tokens=spec.tokens,
            keep_events=spec.keep_events,
        )

    async def _root(self, name: str, app: AppSettings) -> Root:
        if app.load is not None:
            return await load_root(app.load)
        assert app.agent is not None, "the settings have made sure"  # noqa: S101
        return self._written(app.agent, name)

    def _written(self, spec: AgentSettings, name: str) -> Any:
        """The agent that the file describes, with its sub-agents."""
        return llm_agent(
            name=spec.name or name,
            model=self.model(spec),
            description=spec.description,
            instruction=spec.instruction,
            tools=self._tools(spec),
            sub_agents=[self._written(sub, name) for sub in spec.sub_agents],
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
        )

    def model(self, spec: AgentSettings) -> ModelAdapter:
        """The model of an agent in the file; closed with the application."""
        options: dict[str, Any] = {}
        if spec.context_window is not None:
            options["context_window"] = spec.context_window
        model = ModelAdapter(
            spec.model,
            fallbacks=spec.fallbacks,
            access=self._access,
            policy=Policy(max_concurrent_requests=self._max_concurrent_requests),
            token_budget=self.settings.history.token_budget,
            **options,
        )
        self._models.append(model)
        return model

    def embedder(self, app: AppSettings) -> Embedder | None:
        """The embedding model of an app's memory, if it has one; closed with the application."""
        if app.embeddings is None:
            return None
        embedder = resolve_embedder(app.embeddings, access=self._access)
        self._models.append(embedder)
        return embedder

    def _tools(self, spec: AgentSettings) -> list[Any]:
        tools: list[Any] = []
        for item in spec.tools:
            tools += named_tools(item.use, item.options)
        tools += [openapi_toolset(self._document(name)) for name in dict.fromkeys(spec.openapi)]
        return tools + [mcp_toolset(self._server(name)) for name in dict.fromkeys(spec.mcp)]

    def _document(self, name: str) -> OpenApiDocument:
        document = self.settings.openapi_documents.get(name)
        if document is None:
            names = ", ".join(self.settings.openapi_documents) or "none"
            raise ConfigError(
                f"There is no OpenAPI document {name} in the settings; they have {names}."
            )
        return openapi_document(name, document)

    def _server(self, name: str) -> McpServer:
        server = self.settings.mcp_servers.get(name)
        if server is None:
            names = ", ".join(self.settings.mcp_servers) or "none"
            raise ConfigError(f"There is no MCP server {name} in the settings; they have {names}.")
        return mcp_server(name, server)


def _unknown_app(name: str | None, apps: list[str]) -> str:
    """Why no app was chosen: the apps of the settings, else the folders of agents here."""
    if name is not None and name.endswith(".py"):
        file = PurePath(name).with_suffix("")
        module = file.name if file.is_absolute() else ".".join(file.parts)
        return f"An agent in a file is named by module and variable, as {module}:root_agent."
    names = apps or agent_folders()
    inventory = f"{'lango.yaml' if apps else 'this folder'} has {', '.join(names)}"
    if not names:
        missing = "There is no app here" if name is None else f"There is no app {name} here"
        return (
            f"{missing}. `lango init .` writes a lango.yaml with one; an ADK agent of your own is "
            "named by its folder, or as package.module:attribute."
        )
    if name is None and names == ["."]:
        return "Name the app as the first argument: this folder is an agent, named `.`."
    if name is None:
        return f"Name the app as the first argument; {inventory}."
    return f"There is no app {name}; {inventory}.{did_you_mean(name, names)}"


def _require_exact(name: str, agent: Agent) -> None:
    shape = agent.durable.shape if agent.durable else None
    if shape is not None and not shape.is_exact:
        raise ConfigError(
            f"apps.{name}: with durability: strict every turn must be resumable after a crash, "
            f"and those of this agent cannot: {'; '.join(shape.problems)}."
        )


def access_of(settings: Settings) -> dict[str, Access]:
    """The keys and base URLs of the providers in the settings."""
    names = [gateway.name for gateway in GATEWAYS]
    for name in settings.providers:
        if name not in names:
            raise ConfigError(
                f"providers.{name}: there is no such provider.{did_you_mean(name, names)} "
                f"There are {', '.join(sorted(names))}."
            )
    return {
        name: Access(_revealed(provider.api_key), provider.base_url)
        for name, provider in settings.providers.items()
    }


def trace_options(settings: TelemetrySettings) -> TraceOptions:
    """Where traces go and what is in them, from the settings."""
    return TraceOptions(
        endpoint=settings.endpoint,
        headers={name: header.get_secret_value() for name, header in settings.headers.items()},
        service_name=settings.service_name,
        sample_ratio=settings.sample_ratio,
        capture_content=settings.capture_content,
        redact=settings.redact,
    )


def openapi_document(name: str, settings: OpenApiSettings) -> OpenApiDocument:
    """The OpenAPI document for ADK, from its settings."""
    confirmed, operations = settings.require_confirmation, settings.operations
    return OpenApiDocument(
        name=name,
        file=settings.file,
        url=settings.url,
        base_url=settings.base_url,
        operations=None if operations is None else tuple(operations),
        require_confirmation=confirmed if isinstance(confirmed, bool) else tuple(confirmed),
        auth=None if settings.auth is None else _api_auth(settings.auth),
        networks=tuple(settings.networks),
        timeout=settings.timeout,
        prefix=settings.prefix,
    )


def _api_auth(auth: ApiAuthSettings) -> ApiAuth:
    return ApiAuth(
        secret=_revealed(auth.secret) or "",
        username=auth.username,
        header=auth.header,
        per_user=auth.per_user,
        client_id=auth.client_id,
        client_secret=_revealed(auth.client_secret) or "",
        authorization_url=auth.authorization_url,
        token_url=auth.token_url,
    )


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def mcp_server(name: str, settings: McpServerSettings) -> McpServer:
    """The MCP server for ADK, from its settings."""
    require_confirmation = settings.require_confirmation
    return McpServer(
        name=name,
        command=tuple(settings.command) if settings.command else None,
        env={key: value.get_secret_value() for key, value in settings.env.items()},
        cwd=settings.cwd,
        url=settings.url,
        headers={key: value.get_secret_value() for key, value in settings.headers.items()},
        tools=tuple(settings.tools) if settings.tools is not None else None,
        require_confirmation=require_confirmation
        if isinstance(require_confirmation, bool)
        else tuple(require_confirmation),
        timeout=settings.timeout,
        prefix=settings.prefix,
    )
