"""A server for each test, on either database in turn."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fastapi import FastAPI

from faults.turns.workspace import Workspace
from lango.server.auth.identity import Credentials, Keys
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore
from tests.server.auth_app import Clock, auth_app
from tests.server.served_apps import ServedApp, served_app


@pytest.fixture
def workspace(store_url: str, tmp_path: Path) -> Workspace:
    """A database, and an app of the test's own in it."""
    return Workspace(store_url, f"app_{uuid.uuid4().hex}", tmp_path)


@pytest_asyncio.fixture
async def served(workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """A server that is called in process."""
    async with served_app(workspace, tenant) as opened:
        yield opened


@pytest.fixture
def sqlite_workspace(sqlite_url: str, tmp_path: Path) -> Workspace:
    """A workspace on SQLite, for tests that do not depend on the database."""
    return Workspace(sqlite_url, f"app_{uuid.uuid4().hex}", tmp_path)


@pytest_asyncio.fixture
async def sqlite_served(sqlite_workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """A server on SQLite, for tests that do not depend on the database."""
    async with served_app(sqlite_workspace, tenant) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    """A clock that the test advances."""
    return Clock()


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlSessionStore]:
    """A store, opened."""
    async with SqlSessionStore(store_url) as opened:
        yield opened


@pytest.fixture
def keys(store: SqlSessionStore) -> KeyStore:
    """The API keys in it."""
    return KeyStore(store.database)


@pytest.fixture
def app(store: SqlSessionStore, clock: Clock) -> FastAPI:
    """A door that knows them."""
    return auth_app(Credentials(Keys(store.database, clock=clock)))


@pytest_asyncio.fixture
async def adk_served(workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """A server with ADK's own routes."""
    async with served_app(workspace, tenant, adk_routes="/adk") as opened:
        yield opened


@pytest_asyncio.fixture
async def adk_sqlite_served(sqlite_workspace: Workspace, tenant: str) -> AsyncIterator[ServedApp]:
    """The same on SQLite, for tests that do not depend on the database."""
    async with served_app(sqlite_workspace, tenant, adk_routes="/adk") as opened:
        yield opened
