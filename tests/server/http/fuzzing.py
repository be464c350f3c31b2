"""Requests made up by schemathesis from the OpenAPI document, and answers held against it."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

import httpx
import requests
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from faults.turns.workspace import Workspace
from lango.server.backend import services_of
from tests.server.routes.operations import FILE, Operation, document
from tests.server.served_apps import ServedApp, served_app

schemathesis: Any = import_module("schemathesis")  # its generics have no arguments
conformance: Any = import_module("schemathesis.specs.openapi.checks")
CHECKS = [
    import_module("schemathesis.checks").not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


class Fuzzed:
    """A server with a session, a file and a finished turn, called as schemathesis says."""

    def __init__(self, served: ServedApp, session: str, turn: str, runner: asyncio.Runner) -> None:
        self.sent = 0
        self._existing = {"session_id": session, "turn_id": turn, "name": FILE}
        self._served = served
        self._runner = runner
        self._schema = schemathesis.openapi.from_dict(document())

    def fuzz(self, operation: Operation, *, examples: int, start: int) -> None:
        """So many requests of one operation at most; AssertionError if one is answered wrongly."""

        @seed(start)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )
        @given(case=st.one_of(self._cases(operation)))
        def check(case: Any) -> None:
            case.validate_response(self._runner.run(self._call(case)), checks=CHECKS)

        try:
            check()
        except BaseExceptionGroup as wrong:  # as schemathesis has it, and no Exception
            raise AssertionError("; ".join(map(str, wrong.exceptions))) from wrong

    def _cases(self, operation: Operation) -> list[Any]:
        tried = self._schema[operation.path][operation.method]
        modes = schemathesis.GenerationMode
        cases = [tried.as_strategy(mode) for mode in (modes.POSITIVE, modes.NEGATIVE)]
        named = {name: value for name, value in self._existing.items() if name in operation.path}
        if named and operation.method != "DELETE":
            cases += [tried.as_strategy(modes.POSITIVE, path_parameters=named)] * 2
        return cases

    async def _call(self, case: Any) -> httpx.Response:
        self.sent += 1
        sent = case.as_transport_kwargs(base_url="http://localhost")
        prepared: Any = requests.Request(**sent).prepare()
        async with self._served.client() as client:
            headers = {**prepared.headers, **client.headers}
            return await client.request(
                case.method, prepared.url, content=prepared.body, headers=headers
            )


@contextmanager
def fuzzed(workspace: Workspace, tenant: str) -> Generator[Fuzzed]:
    """A server to be fuzzed; on a loop of its own, for hypothesis calls what is not async."""
    with asyncio.Runner() as runner:
        opened = _opened(workspace, tenant)
        served, session, turn = runner.run(opened.__aenter__())
        try:
            yield Fuzzed(served, session, turn, runner)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@asynccontextmanager
async def _opened(workspace: Workspace, tenant: str) -> AsyncGenerator[tuple[ServedApp, str, str]]:
    async with served_app(workspace, tenant) as served:
        services_of(served.app).health.is_warm = True
        session = await served.session()
        await served.file(session, FILE, b"[1]", "application/json")
        turn = await served.turn(session, "never")
        async with served.client() as client:
            await client.post(f"/v1/turns/{turn}/cancel")
        yield served, session, turn
