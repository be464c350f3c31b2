"""The test kit tested: its suites find faults, and its strategies reach every model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from lango.testing.events import model
from lango.testing.same import differences
from lango.testing.session_suite import ServiceFactory, checks


def models_of(annotation: Any, found: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """Every pydantic model that a value of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in found:
            found.add(annotation)
            for field in annotation.model_fields.values():
                models_of(field.annotation, found)
        return found
    for argument in get_args(annotation):
        models_of(argument, found)
    return found


MODELS = sorted(models_of(Event | AuthConfig, set()), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", MODELS, ids=lambda cls: cls.__name__)
def test_every_model_of_an_event_is_generated(cls: type[BaseModel]) -> None:
    @settings(max_examples=5)
    @given(st.data())
    def made(data: st.DataObject) -> None:
        assert isinstance(data.draw(model(cls)), cls)

    made()


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(1, True), (1, 1.0), ("1", 1), ([1], (1,)), ({"a": None}, {}), ([1, 2], [1]), (None, {})],
)
def test_differences_are_seen(expected: Any, actual: Any) -> None:
    assert differences(expected, actual)
    assert differences(actual, expected)
    assert differences(expected, expected) == []


class Stammering(InMemorySessionService):
    """Keeps every event twice, under two ids."""

    async def append_event(self, session: Session, event: Event) -> Event:
        await super().append_event(session, event)
        return await super().append_event(session, event.model_copy(update={"id": f"{event.id}-2"}))


def one_for_all(service: BaseSessionService) -> ServiceFactory:
    """A factory that does not keep its tenants apart."""

    @asynccontextmanager
    async def factory(_tenant: str) -> AsyncGenerator[BaseSessionService]:
        yield service

    return factory


async def broken(factory: ServiceFactory) -> set[str]:
    failed: set[str] = set()
    for check in checks({"shared", "tenants"}):
        try:
            await check(factory)
        except Exception:  # noqa: BLE001 - a service may fail in any way
            failed.add(check.name)
    return failed


async def test_the_suite_finds_tenants_that_are_not_kept_apart() -> None:
    assert len(await broken(one_for_all(InMemorySessionService()))) > 10


async def test_the_suite_finds_repeated_events() -> None:
    service = Stammering()
    found = await broken(one_for_all(service))
    assert {"events_keep_their_order", "the_same_event_twice_is_one"} <= found
