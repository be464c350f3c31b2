"""What the tests of this folder share; failures in its helpers are explained as their own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lango.adk.session_service import SessionServiceAdapter

pytest.register_assert_rewrite("tests.runner.lockstep")


@pytest_asyncio.fixture
async def sessions(store_url: str, tenant: str) -> AsyncIterator[SessionServiceAdapter]:
    """Our service on either database, for a tenant of this test's own."""
    async with SessionServiceAdapter(store_url, tenant=tenant) as service:
        yield service
