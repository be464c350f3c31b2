"""What `lango doctor` looks at, one thing after the other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from lango.agent.probe import probe
from lango.app import Application
from lango.config.load import Loaded
from lango.config.settings import AgentSettings, Settings
from lango.errors import LangoError
from lango.store import migrate
from lango.store.connecting import in_words

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    what: str
    ok: bool
    said: str


async def examine(loaded: Loaded, *, models: bool) -> AsyncIterator[Finding]:
    """Everything the settings name, in the order in which it is needed."""
    where = loaded.path or "no lango.yaml here: defaults and environment variables"
    yield Finding("settings", ok=True, said=str(where))
    store = await _store(loaded.settings)
    yield store
    if not store.ok:
        return
    async with Application(loaded) as application:
        for name in loaded.settings.apps:
            async for finding in _app(application, name):
                yield finding
        if models:
            for spec in _distinct(loaded.settings):
                yield await _model(application, spec)


async def _store(settings: Settings) -> Finding:
    url = settings.store.url.get_secret_value()
    try:
        with in_words(url):
            revision = await migrate.current(url, settings.store.db_schema)
            if revision is None and url.startswith("sqlite"):
                return Finding("store", ok=True, said="a new SQLite file, made when it is needed")
            revision = await migrate.check(url, settings.store.db_schema)
    except LangoError as error:
        return Finding("store", ok=False, said=str(error))
    return Finding("store", ok=True, said=f"schema {revision}")


async def _app(application: Application, name: str) -> AsyncIterator[Finding]:
    """Whether an app can be loaded, and whether its turns can go on after a crash."""
    try:
        agent = await application.agent(name)
    except LangoError as error:
        yield Finding(f"app {name}", ok=False, said=str(error))
        return
    yield Finding(f"app {name}", ok=True, said=f"root agent {agent.root.name}")
    if agent.durable is not None:
        problems = agent.durable.shape.problems
        said = f"not resumable: {'; '.join(problems)}" if problems else "exact"
        yield Finding(f"turns of {name}", ok=True, said=said)


async def _model(application: Application, spec: AgentSettings) -> Finding:
    what = f"model {spec.model}"
    try:
        found = await probe(application.model(spec))
    except LangoError as error:
        return Finding(what, ok=False, said=str(error))
    return Finding(what, ok=found.ok, said=found.said)


def _distinct(settings: Settings) -> Iterator[AgentSettings]:
    """An agent for each model that is named anywhere, fallbacks included."""
    seen: set[str] = set()
    for app in settings.apps.values():
        for spec in _family(app.agent):
            for name in (spec.model, *spec.fallbacks):
                if name not in seen:
                    seen.add(name)
                    yield spec.model_copy(update={"model": name, "fallbacks": []})


def _family(spec: AgentSettings | None) -> Iterator[AgentSettings]:
    if spec is not None:
        yield spec
        for sub in spec.sub_agents:
            yield from _family(sub)
