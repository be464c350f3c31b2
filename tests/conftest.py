"""Databases for tests: one PostgreSQL database per worker, one SQLite file per test."""

import os
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

CI = os.environ.get("CI") == "true"

# A deadline measures the machine, not the code; in CI a run must be the same each time.
settings.register_profile("lango", deadline=None, print_blob=True, derandomize=CI)
settings.load_profile("lango")


async def _migrate(url: str) -> None:
    # Imported late: the tests of core then run without the store.
    from lango.store.schema import migrate

    await migrate.upgrade(url)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_url() -> AsyncIterator[str]:
    """A migrated database of this worker's own; tests in it are kept apart by `tenant`."""
    # Imported late: the tests of core then run without the store.
    from tests.support.databases import POOLED_VARIABLE, server_url, temporary_postgres
    from tests.support.pgbouncer import require_pgbouncer

    if POOLED_VARIABLE in os.environ:
        require_pgbouncer()
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(temporary_postgres())
        except (OSError, SQLAlchemyError) as error:
            reason = f"PostgreSQL does not serve {make_url(server_url())!r}: {error!r}"
            if CI:
                pytest.fail(reason)
            pytest.skip(reason)
        yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vector_url() -> AsyncIterator[str]:
    """A migrated database on a server that has pgvector, with the extension."""
    # Imported late: the tests of core then run without the store.
    from tests.support.databases import on_server, temporary_postgres
    from tests.support.environments import NoEnvironmentError
    from tests.support.pgvector import pgvector_cluster
    from tests.support.skipping import skipped_without

    with skipped_without(NoEnvironmentError, "pgvector"), pgvector_cluster() as cluster:
        async with temporary_postgres(cluster.url) as url:
            await on_server(url, "create extension vector")
            yield url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one migrated file, which tests copy instead of migrating again."""
    folder = tmp_path_factory.mktemp("sqlite_template")
    await _migrate(f"sqlite:///{folder / 'lango.db'}")
    return folder


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A migrated file of this test's own."""
    # The whole folder, for a write-ahead log may lie beside the file.
    folder = shutil.copytree(sqlite_template, tmp_path / "sqlite")
    return f"sqlite:///{folder / 'lango.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Either database in turn: a test that takes this runs on both."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return request.getfixturevalue(name)


@pytest.fixture
def tenant() -> str:
    """A new tenant, unique to the test."""
    return f"tenant-{uuid.uuid4().hex}"
