"""What endpoints are made of."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from lango import server


def routes() -> Iterator[APIRoute]:
    """Of all nouns."""
    for module in pkgutil.walk_packages(server.__path__, f"{server.__name__}."):
        for router in vars(import_module(module.name)).values():
            for route in router.routes if isinstance(router, APIRouter) else ():
                assert isinstance(route, APIRoute)
                yield route


def calls_of(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    """The function of an endpoint, and those that find out what it is called with."""
    if dependant.call is not None:
        yield dependant.call
    for inner in dependant.dependencies:
        yield from calls_of(inner)


def is_async(call: Callable[..., Any]) -> bool:
    called = call if inspect.isroutine(call) else type(call).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def test_no_request_waits_for_a_thread() -> None:
    """FastAPI runs what is not async in a thread: there are few, and each hop costs the loop."""
    known = list(routes())
    calls = {call for route in known for call in calls_of(route.dependant)}
    assert len(calls) > len(known) > 10
    assert [call for call in calls if not is_async(call)] == []
