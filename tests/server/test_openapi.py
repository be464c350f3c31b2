"""The OpenAPI document is true: what it allows is answered as it says, and nothing breaks us."""

import asyncio
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import httpx
import pytest
import requests
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from faults.turn_place import Place
from lango.server.backend import services_of
from lango.server.problems import MEDIA_TYPE
from tests.server.operations import OPERATIONS, Operation, document
from tests.server.places import House, house

schemathesis: Any = import_module("schemathesis")  # its generics have no arguments
conformance: Any = import_module("schemathesis.specs.openapi.checks")
EXAMPLES = 20
CHECKS = [
    import_module("schemathesis.checks").not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


def test_every_operation_says_what_it_is() -> None:
    for methods in document()["paths"].values():
        for told in methods.values():
            assert told["operationId"]
            assert told["description"]
            assert any(status.startswith("2") for status in told["responses"])
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_failure_is_a_problem() -> None:
    for path, methods in document()["paths"].items():
        for told in methods.values():
            failures = {s: r for s, r in told["responses"].items() if s[0] in "45"}
            if path not in ("/healthz", "/readyz"):
                assert {"401", "403"} <= set(failures)
                kinds = {kind for response in failures.values() for kind in response["content"]}
                openais = {"application/json"} if path.startswith("/openai/") else set[str]()
                assert kinds == {MEDIA_TYPE} | openais


def test_the_credential_is_a_bearer() -> None:
    schemes = document()["components"]["securitySchemes"]
    assert {name: one["scheme"] for name, one in schemes.items()} == {"bearer": "bearer"}


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """A loop of our own: hypothesis calls what is not async."""
    with asyncio.Runner() as made:
        yield made


class Fuzzed:
    """A server with a session and a finished turn, called as cases of schemathesis say."""

    def __init__(self, served: House, session: str, turn: str) -> None:
        self.existing = {"session_id": session, "turn_id": turn}
        self._served = served

    async def call(self, case: Any) -> httpx.Response:
        sent = case.as_transport_kwargs(base_url="http://localhost")
        prepared: Any = requests.Request(**sent).prepare()
        async with self._served.client() as client:
            headers = {**prepared.headers, **client.headers}
            return await client.request(
                case.method, prepared.url, content=prepared.body, headers=headers
            )


async def _open(place: Place, tenant: str) -> tuple[Any, Fuzzed]:
    opened = house(place, tenant)
    served = await opened.__aenter__()
    services_of(served.app).health.is_warm = True
    session = await served.session()
    turn = await served.turn(session, "never")
    async with served.client() as client:
        await client.post(f"/v1/turns/{turn}/cancel")
    return opened, Fuzzed(served, session, turn)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_whatever_is_sent_is_answered_as_documented(
    operation: Operation, sqlite_place: Place, tenant: str, runner: asyncio.Runner
) -> None:
    schema = schemathesis.openapi.from_dict(document())
    tried = schema[operation.path][operation.method]
    opened, fuzzed = runner.run(_open(sqlite_place, tenant))
    named = {name: value for name, value in fuzzed.existing.items() if name in operation.path}
    modes = schemathesis.GenerationMode
    cases = [tried.as_strategy(mode) for mode in (modes.POSITIVE, modes.NEGATIVE)]
    if named and operation.method != "DELETE":
        cases += [tried.as_strategy(modes.POSITIVE, path_parameters=named)] * 2

    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=st.one_of(cases))
    def check(case: Any) -> None:
        case.validate_response(runner.run(fuzzed.call(case)), checks=CHECKS)

    try:
        check()
    finally:
        runner.run(opened.__aexit__(None, None, None))
