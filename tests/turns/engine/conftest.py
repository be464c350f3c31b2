"""A Temporal server for the tests of one process."""

from collections.abc import AsyncIterator

import pytest_asyncio

from faults.carriers.temporal_server import TemporalServer, temporal_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[TemporalServer]:
    """A running server; the databases of tests keep their task queues apart."""
    with temporal_server() as server:
        await server.start()
        yield server
