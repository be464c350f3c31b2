"""What the tests of this folder share; failures in its helpers are explained as their own."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lango.adk.sessions.service import SessionServiceAdapter
from lango.agent.agent import Agent
from tests.adk.runner.agent.durable_agents import APP, Made

pytest.register_assert_rewrite("tests.adk.runner.parity.lockstep")


@pytest_asyncio.fixture
async def sessions(store_url: str, tenant: str) -> AsyncIterator[SessionServiceAdapter]:
    """Our service on either database, for a tenant of this test's own."""
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        yield service


@pytest.fixture
def made(store_url: str, tenant: str) -> Made:
    """Makes agents on either database."""

    def make(root: Any, **options: Any) -> Agent:
        return Agent(root, store=store_url, tenant=tenant, app_name=APP, **options)

    return make
