"""The checks of `lango doctor`, in order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lango.adk.apps.load import agent_folders
from lango.adk.apps.parts import adk_mcp_toolsets_in, mcp_problem, models_in
from lango.adk.mcp.report import ServerReport, server_reports
from lango.adk.models.adapter import ModelAdapter
from lango.agent.agent import Agent
from lango.agent.probe import probe
from lango.app import Application
from lango.config.apps import AgentSettings, AppSettings
from lango.config.load import LoadedSettings
from lango.config.settings import DATABASE, Settings
from lango.core.causes import cause_of
from lango.errors import ConfigError, LangoError, ObjectStoreError
from lango.store.db.connection_errors import in_words, is_missing_file, require_file
from lango.store.db.listen import Notices
from lango.store.files.objects import ObjectStore
from lango.store.hold import read_hold
from lango.store.insight.workload import abandoned_turns
from lango.store.memory.vectors import EntryVectors
from lango.store.schema import migrate
from lango.turns.probes import probe_bus, probe_engine

logger = logging.getLogger(__name__)

_NOT_RESUMABLE: Final = (
    "not resumable: {}. If a worker dies, its turn fails: give the message again with `lango turns "
    "retry`, or change the agent (docs: explanation/durability)"
)
_NO_APPS: Final = (
    "none in the settings. `lango init DIR` writes a lango.yaml with one; an agent of your own "
    "goes under `apps`"
)
_AGENTS_HERE: Final = "none in the settings. This folder has agents: `lango doctor {}` checks them"
_NEW_FILE: Final = "a new SQLite file, made when it is needed"
_NO_NOTICES: Final = (
    "none: PgBouncer in transaction mode delivers none, so processes poll the database four times "
    "a second. Set `store.direct_url` to the URL of the database itself, or a `bus`"
)
_LOST_NOTICES: Final = (
    "do not arrive by store.direct_url. It must be the URL of the same database, not through a "
    "pooler, or through one in session mode"
)
_SETTINGS: Final = (
    "each transaction sets them, and each statement is a transaction. As the database's owner run "
    "`{}`, and RECONNECT in PgBouncer: a statement is then one round trip, not three"
)
_NO_ANSWER: Final = "does not answer: {}. Start it, or correct `{}` in the settings"
_NO_OBJECTS: Final = (
    "{} Correct `files.objects`, or the environment variables with its credentials and its "
    "endpoint (docs: how-to/object-storage)"
)
_OWN_CACHES: Final = (
    "App.context_cache_config has no effect on {}: a prompt's beginning is cached without it "
    "(docs: how-to/models). Leave it out, or use ADK's own class of the model"
)
_NO_VECTORS: Final = {
    True: "SQLite compares none: searches of memory use words alone. Use PostgreSQL with pgvector",
    False: "the database has no pgvector, so searches of memory use words alone. Install it on the "
    "server, and run `create extension vector` in the database",
}
_SERVER_ADVICE: Final = {
    "MCP server": "Install or start it, or correct `mcp_servers.{}`",
    "OpenAPI document": "Start its server, or correct `openapi_documents.{}` and its `networks`",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    subject: str
    ok: bool
    message: str
    warns: bool = False  # it works, but the user should know or do something


async def examine(
    loaded: LoadedSettings, apps: Sequence[str] = (), *, models: bool
) -> AsyncIterator[CheckResult]:
    """Check everything that these apps need (default: all of the settings), in that order."""
    source = loaded.path or "no lango.yaml here: defaults and environment variables"
    yield CheckResult("settings", ok=True, message=str(source))
    store = await _store(loaded.settings)
    for finding in (store, *await _objects(loaded.settings.files.objects)):
        yield finding
        if not finding.ok:
            return
    names = list(apps or loaded.settings.apps)
    if not names:
        yield CheckResult("apps", ok=True, message=_no_apps(), warns=True)
    if not names and store.message == _NEW_FILE:
        return  # nothing else needs the file, which `Application` would create
    async with Application(loaded) as application:
        async for finding in _servers(application):
            yield finding
        for name in names:
            async for finding in _app(application, name):
                yield finding
        abandoned = [] if apps else await _abandoned(application)
        embeddings = await _embeddings(application, names, models=models)
        others = (*await _held(application), *await _pooler(application), *abandoned)
        for finding in (*embeddings, *others):
            yield finding
        async for finding in _models(application, names if models else ()):
            yield finding


def _no_apps() -> str:
    """No app in the settings; names the agents of this folder, if it has some."""
    folders = agent_folders()
    return _AGENTS_HERE.format(" ".join(folders)) if folders else _NO_APPS


async def _models(application: Application, names: Sequence[str]) -> AsyncIterator[CheckResult]:
    """Try every model of these apps once."""
    for spec in _distinct(application.settings, names):
        yield await _model(application, spec)
    for name in names:
        async for finding in _loaded_models(application, name):
            yield finding


async def _store(settings: Settings) -> CheckResult:
    url = settings.store.full_url
    try:
        with in_words(url):
            require_file(url, may_create=True)
            if is_missing_file(url):
                return CheckResult("store", ok=True, message=_NEW_FILE)
            revision = await migrate.current(url, settings.store.db_schema)
            if revision is None and url.startswith("sqlite"):
                return CheckResult("store", ok=True, message=_NEW_FILE)
            revision = await migrate.check(url, settings.store.db_schema)
    except LangoError as error:
        return CheckResult("store", ok=False, message=str(error))
    return CheckResult("store", ok=True, message=f"schema {revision}")


async def _held(application: Application) -> list[CheckResult]:
    """Find out whether no turn may run, as in a restored database."""
    hold = await read_hold(application.store.database)
    return [] if hold is None else [CheckResult("turns", ok=False, message=str(hold))]


async def _objects(url: str | None) -> list[CheckResult]:
    """Store, read and delete an object, if there is an object store."""
    if url is None:
        return []
    try:
        await ObjectStore(url).probe()
    except ObjectStoreError as error:
        return [CheckResult("object store", ok=False, message=_NO_OBJECTS.format(error))]
    except ConfigError as error:
        return [CheckResult("object store", ok=False, message=str(error))]
    return [CheckResult("object store", ok=True, message="stores, reads and deletes")]


async def _pooler(application: Application) -> list[CheckResult]:
    """Check what does not pass PgBouncer in transaction mode: notices and settings."""
    database = application.store.database
    if not database.is_pooled:
        return []
    notices = CheckResult("notices", ok=True, message=_NO_NOTICES, warns=True)
    if application.settings.bus.get_secret_value() != DATABASE:
        notices = CheckResult("notices", ok=True, message="not needed: there is a bus")
    elif database.can_listen:
        arrive = await Notices(database).arrive()
        message = "arrive by store.direct_url" if arrive else _LOST_NOTICES
        notices = CheckResult("notices", ok=arrive, message=message)
    missing = await database.missing_settings()
    message = _SETTINGS.format("; ".join(missing)) if missing else "those of the role"
    return [
        notices,
        CheckResult("connection settings", ok=True, message=message, warns=bool(missing)),
    ]


async def _servers(application: Application) -> AsyncIterator[CheckResult]:
    """Connect to the bus and to the engine, if they have servers of their own."""
    settings, database = application.settings, application.store.database
    for subject, setting, probe_server in (
        ("bus", settings.bus, probe_bus),
        ("engine", settings.engine, probe_engine),
    ):
        try:
            message = await probe_server(setting.get_secret_value(), database)
        except Exception as error:  # noqa: BLE001 - each client has errors of its own
            yield CheckResult(
                subject, ok=False, message=_NO_ANSWER.format(cause_of(error), subject)
            )
        else:
            if message is not None:
                yield CheckResult(subject, ok=True, message=message)


async def _app(application: Application, name: str) -> AsyncIterator[CheckResult]:
    """Check that an app loads, whether its turns can resume after a crash, and its MCP servers."""
    try:
        agent = await application.agent(name)
    except LangoError as error:
        yield CheckResult(f"app {name}", ok=False, message=str(error))
        return
    yield CheckResult(f"app {name}", ok=True, message=f"root agent {agent.root.name}")
    if agent.durable is not None:
        problems = agent.durable.shape.problems
        message = _NOT_RESUMABLE.format("; ".join(problems)) if problems else "resumable"
        yield CheckResult(f"turns of {name}", ok=True, message=message, warns=bool(problems))
    if agent.runner.app.context_cache_config is not None:
        for finding in _caches(agent, name):
            yield finding
    async for report in server_reports(agent.root):
        for finding in _server(report):
            yield finding
    for owner, toolset in adk_mcp_toolsets_in(agent.root):
        problem = await mcp_problem(owner, toolset)
        message = problem or "lists its tools"
        yield CheckResult(f"an MCP server of {owner.name}", ok=not problem, message=message)


async def _embeddings(
    application: Application, names: Sequence[str], *, models: bool
) -> list[CheckResult]:
    """Check that the database compares embeddings, and try the models of these apps' memories."""
    apps = [app for name in names if (app := application.settings.apps.get(name)) is not None]
    embedded = {app.embeddings: app for app in apps if app.embeddings is not None}
    if not embedded:
        return []
    database, subject = application.store.database, "embeddings of memory"
    if not await EntryVectors(database).are_supported():
        message = _NO_VECTORS[database.is_sqlite]
        return [CheckResult(subject, ok=True, message=message, warns=True)]
    supported = CheckResult(subject, ok=True, message="pgvector compares them")
    tried = [await _embedding_model(application, app) for app in embedded.values() if models]
    return [supported, *tried]


async def _embedding_model(application: Application, app: AppSettings) -> CheckResult:
    subject = f"model {app.embeddings}"
    try:
        embedder = application.embedder(app)
        [vector] = await embedder.embed(["Is this model there?"]) if embedder else [[]]
    except LangoError as error:
        return CheckResult(subject, ok=False, message=str(error))
    return CheckResult(subject, ok=True, message=f"embeds texts, in {len(vector):,} dimensions")


def _caches(agent: Agent, name: str) -> Iterator[CheckResult]:
    """A warning if an App's setting for explicit caches does not reach its models."""
    models = models_in(agent.root).items()
    own_models = [model for model, instance in models if isinstance(instance, ModelAdapter)]
    if own_models:
        message = _OWN_CACHES.format(", ".join(own_models))
        yield CheckResult(f"prompt caches of {name}", ok=True, message=message, warns=True)


def _server(report: ServerReport) -> list[CheckResult]:
    """The tools that an agent gets from a server, or the server's problems."""
    subject = f"{report.kind} {report.server} of {report.agent}"
    if report.error:
        advice = _SERVER_ADVICE[report.kind].format(report.server)
        return [
            CheckResult(subject, ok=False, message=f"cannot be reached: {report.error}. {advice}")
        ]
    problems = [CheckResult(subject, ok=False, message=problem) for problem in report.problems]
    count = f"{len(report.tools)} tool{'' if len(report.tools) == 1 else 's'}"
    return problems or [
        CheckResult(subject, ok=True, message=f"{count}: {', '.join(report.tools)}")
    ]


async def _loaded_models(application: Application, name: str) -> AsyncIterator[CheckResult]:
    """Try each model of an agent that is loaded from code, once.

    A model that answers but calls no tool is a warning: its agent may have none.
    """
    app = application.settings.apps.get(name)
    if app is not None and app.load is None:
        return
    try:
        agent = await application.agent(name)
    except LangoError:  # already reported by the app's own check
        return
    for model_name, model in models_in(agent.root).items():
        subject = f"model {model_name} of {name}"
        if isinstance(model, Exception):
            yield CheckResult(subject, ok=False, message=str(cause_of(model)))
            continue
        result = await probe(model)
        warns = result.answers and not result.ok
        yield CheckResult(subject, ok=result.ok or warns, message=result.message, warns=warns)


async def _abandoned(application: Application) -> list[CheckResult]:
    """Find turns of renamed or removed apps: they block their sessions."""
    waiting = await abandoned_turns(application.store.database, application.settings.apps)
    advice = "no worker has that app. Name it in the settings again, or cancel them"
    return [
        CheckResult(
            f"turns of {app}", ok=False, message=f"{count} wait, and {advice} (lango turns list)"
        )
        for app, count in waiting.items()
    ]


async def _model(application: Application, spec: AgentSettings) -> CheckResult:
    subject = f"model {spec.model}"
    try:
        result = await probe(application.model(spec))
    except LangoError as error:
        return CheckResult(subject, ok=False, message=str(error))
    return CheckResult(subject, ok=result.ok, message=result.message)


def _distinct(settings: Settings, names: Sequence[str]) -> Iterator[AgentSettings]:
    """An agent for each model of these apps in the settings, fallbacks included."""
    model_names: set[str] = set()
    for app in (settings.apps.get(name) for name in names):
        for spec in app.agent.family() if app and app.agent else ():
            for name in (spec.model, *spec.fallbacks):
                if name not in model_names:
                    model_names.add(name)
                    yield spec.model_copy(update={"model": name, "fallbacks": []})
