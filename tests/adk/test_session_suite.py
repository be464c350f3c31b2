"""The public conformance suite, on both databases and on ADK's own service in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService

from lango.adk.sessions.service import SessionServiceAdapter
from lango.testing.session_suite import Check, ServiceFactory, checks


def name_of(check: Check) -> str:
    return check.name


def on_store(url: str, prefix: str) -> ServiceFactory:
    return lambda tenant: SessionServiceAdapter(url, tenant=f"{prefix}-{tenant}")


def in_memory() -> ServiceFactory:
    services: dict[str, InMemorySessionService] = {}

    @asynccontextmanager
    async def factory(tenant: str) -> AsyncGenerator[BaseSessionService]:
        yield services.setdefault(tenant, InMemorySessionService())

    return factory


@pytest.mark.parametrize("check", checks(), ids=name_of)
async def test_conformance(check: Check, store_url: str, tenant: str) -> None:
    await check(on_store(store_url, tenant))


@pytest.mark.parametrize("check", checks({"shared", "tenants"}), ids=name_of)
async def test_adk_in_memory(check: Check) -> None:
    await check(in_memory())
