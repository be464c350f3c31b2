"""Canaries of the private parts of other vendors than ADK; `test_private_parts.py` lists them."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr, field_validator

from lango.adk.sessions import pydantic_slots
from tests.support.canary import Canary

AIOSQLITE = Canary(
    "aiosqlite",
    "aiosqlite",
    "lango/store/db/sqlite/driver.py",
    "one trip to the thread per statement",
)
ASYNCIO = Canary(
    "asyncio", "asyncio", "lango/tools/builtin/processes.py", "closing the pipes of a child process"
)
OPENTELEMETRY = Canary(
    "opentelemetry",
    "opentelemetry",
    "lango/telemetry/tracing/collected.py",
    "whether anything collects logs",
)
PYDANTIC = Canary(
    "pydantic",
    "pydantic",
    "lango/adk/sessions/pydantic_slots.py",
    "rebuilding events without validation",
)
UVICORN = Canary(
    "uvicorn",
    "uvicorn",
    "lango/server/http/connections.py",
    "limits of connections and slow clients",
)


def test_aiosqlite_runs_functions_in_the_thread_of_a_connection() -> None:
    AIOSQLITE.takes(AIOSQLITE.part("", "Connection._execute"), "self", "fn", "args", "kwargs")
    connection = AIOSQLITE.part("", "Connection")
    AIOSQLITE.contains(
        connection,
        "self._thread = Thread(",
        "self._thread.start()",
        "def _conn(self) -> sqlite3.Connection",
    )


async def test_a_process_of_asyncio_has_its_transport() -> None:
    process: Any = await asyncio.create_subprocess_exec("true")
    await process.wait()
    ASYNCIO.check(hasattr(process, "_transport"), "Process", "_transport")
    process._transport.close()


class Plain(BaseModel):
    number: int = 0


class Special(BaseModel):
    number: int = 0
    _seen: list[int] = PrivateAttr(default_factory=list[int])
    _mark: str = PrivateAttr(default="new")

    @field_validator("number")
    @classmethod
    def positive(cls, value: int) -> int:
        return abs(value)


@pytest.mark.parametrize("slot", ["fields_set", "extra", "private"])
def test_models_of_pydantic_have_these_slots(slot: str) -> None:
    member = PYDANTIC.part("", f"BaseModel.__pydantic_{slot}__")
    PYDANTIC.check(hasattr(member, "__set__"), "BaseModel", f"a slot __pydantic_{slot}__")


def test_a_model_made_by_its_slots_is_a_model() -> None:
    made = object.__new__(Plain)
    pydantic_slots.set_values(made, {"number": 1})
    pydantic_slots.set_fields_set(made, {"number"})
    pydantic_slots.set_extra(made, None)
    pydantic_slots.set_private(made, None)
    same = made == Plain(number=1) and made.model_fields_set == {"number"}
    PYDANTIC.check(same, "BaseModel", "all of an instance in these four slots")


def test_a_class_of_pydantic_lists_its_private_attributes_and_validators() -> None:
    slots = pydantic_slots
    values = slots.private_values(Special())
    PYDANTIC.check(values == {"_seen": [], "_mark": "new"}, "BaseModel", "the private values")
    plain = (slots.private_defaults(Plain), slots.has_private_factories(Plain))
    PYDANTIC.check(plain == (None, False), "BaseModel", "__private_attributes__ of that form")
    defaults, factories = slots.private_defaults(Special), slots.has_private_factories(Special)
    special = (defaults or {}).get("_mark") == "new" and factories
    PYDANTIC.check(special, "BaseModel", "__private_attributes__ of that form")
    names = (slots.validator_names(Plain), slots.validator_names(Special))
    PYDANTIC.check(names == (set(), {"positive"}), "BaseModel", "__pydantic_decorators__")


def test_opentelemetry_has_a_provider_of_logs_that_stands_in() -> None:
    provider = OPENTELEMETRY.part("_logs", "get_logger_provider")()
    module = type(provider).__module__
    OPENTELEMETRY.check(module.startswith("opentelemetry._logs"), "get_logger_provider", module)


def test_the_protocol_of_uvicorn_has_these_methods_and_attributes() -> None:
    module = "protocols.http.httptools_impl"
    methods = (
        *("connection_made", "connection_lost", "data_received", "on_message_begin", "on_url"),
        *("on_header", "on_headers_complete", "on_response_complete", "send_400_response"),
        *("pause_writing", "resume_writing"),
    )
    for method in methods:
        UVICORN.part(module, f"HttpToolsProtocol.{method}")
    protocol = UVICORN.part(module, "HttpToolsProtocol")
    UVICORN.contains(protocol, "self.cycle:", "self.flow:", "self.pipeline:", "self.loop =")
    cycle = UVICORN.part(module, "RequestResponseCycle")
    UVICORN.contains(cycle, "self.more_body =", "self.response_complete =")
    flow = UVICORN.part("protocols.http.flow_control", "FlowControl")
    UVICORN.contains(flow, "self.read_paused =", "def pause_reading(")
