"""Servers of buses, started for these tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from faults.carriers.bus_servers import COMMANDS, BusServer, bus_server


@pytest_asyncio.fixture(params=COMMANDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[BusServer]:
    """A running NATS or Redis server of the test's own."""
    with bus_server(request.param) as made:
        await made.start()
        yield made
