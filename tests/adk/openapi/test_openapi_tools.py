"""Tools of a real API, from its OpenAPI document: credentials, refusals, limits, and names."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from google.adk.agents import LlmAgent

import lango
from faults.turns.workspace import TurnProcess
from lango.adk.openapi.operations import read_document
from lango.adk.openapi.settings import ApiAuth, OpenApiDocument, openapi_toolset
from lango.adk.sessions.service import load_session
from lango.core.turns.events import (
    ApprovalRequired,
    CredentialRequired,
    ToolFinished,
    TurnEvent,
)
from lango.errors import InvalidToolError
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.testing import ScriptedProvider
from tests.adk.mcp.mcp_servers import call
from tests.adk.openapi.shop_api import KEY, PASSWORD, TOKEN, ShopApi, shop_api
from tests.support.credential_turns import all_rows

LOOPBACK = (ip_network("127.0.0.0/8"),)
CREDENTIAL_KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(scope="module")
def api() -> Generator[ShopApi]:
    with shop_api() as running:
        yield running


@pytest.fixture
async def store(sqlite_url: str) -> AsyncGenerator[SqlSessionStore]:
    async with SqlSessionStore(
        sqlite_url, credential_keys=[CREDENTIAL_KEY], public_url="http://127.0.0.1:1"
    ) as opened:
        yield opened


class Shop:
    """An agent with the API's operations, and a model that follows a script."""

    def __init__(
        self, store: SqlSessionStore, document: OpenApiDocument, *script: Any, tools: Any = ()
    ) -> None:
        self.model = ScriptedProvider([*script, "done"])
        model = lango.ModelAdapter(self.model, "demo")
        usable = [openapi_toolset(document), *tools]
        self.agent = lango.Agent(LlmAgent(name="root", model=model, tools=usable), store=store)

    async def say(self, message: str = "go") -> list[TurnEvent]:
        return [event async for event in self.agent.stream(message)]

    async def results(self) -> list[ToolFinished]:
        """One turn, and the results of its calls."""
        try:
            return _results(await self.say())
        finally:
            await self.agent.close()

    @property
    def offered(self) -> list[str]:
        return [tool.name for tool in self.model.requests[-1].tools]


def _results(events: list[TurnEvent]) -> list[ToolFinished]:
    return [event for event in events if isinstance(event, ToolFinished)]


def _document(api: ShopApi, **options: Any) -> OpenApiDocument:
    options.setdefault("networks", LOOPBACK)
    return OpenApiDocument("shop", url=api.document, **options)


async def test_a_call_with_the_token_of_all_users(
    api: ShopApi, store: SqlSessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    document = _document(api, operations=("getOrder",), auth=ApiAuth(secret=TOKEN))
    shop = Shop(store, document, call("get_order", order_id=7), call("get_order", order_id=404))
    found, missing = await shop.results()
    assert shop.offered == ["get_order"]
    (tool,) = shop.model.requests[-1].tools
    assert tool.description == "Get an order by its number."
    assert tool.parameters["required"] == ["order_id"]
    assert found.result == {"order": 7, "status": "delivered", "heard": "Bearer **********"}
    assert "there is no such order" in (missing.error or "")
    assert missing.error_id is not None
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("auth", "calls", "error"),
    [
        (ApiAuth(secret=KEY), call("create_refund", order=1, amount=2.5), None),
        (ApiAuth(secret=PASSWORD, username="clerk"), call("get_stock"), None),
        (
            ApiAuth(secret=f"Bearer {TOKEN}", header="Authorization"),
            call("get_order", order_id=1),
            None,
        ),
        (ApiAuth(secret="hush-another"), call("get_order", order_id=1), "Status Code: 401"),
        (None, call("get_order", order_id=1), "Status Code: 401"),
    ],
)
async def test_the_credential_is_sent_as_the_document_says(
    api: ShopApi, store: SqlSessionStore, auth: ApiAuth | None, calls: Any, error: str | None
) -> None:
    (result,) = await Shop(store, _document(api, auth=auth), calls).results()
    if error is None:
        assert result.error is None
    else:
        assert error in (result.error or "")


async def test_wrong_arguments_do_not_reach_the_api(api: ShopApi, store: SqlSessionStore) -> None:
    before = len(api.requests)
    document = _document(api, auth=ApiAuth(secret=TOKEN))
    (result,) = await Shop(store, document, call("get_order", order_id="x")).results()
    assert "Wrong argument order_id" in (result.error or "")
    assert len(api.requests) == before


async def test_a_person_approves_the_operations_that_need_it(
    api: ShopApi, store: SqlSessionStore
) -> None:
    auth = ApiAuth(secret=KEY)
    document = _document(api, require_confirmation=("createRefund",), auth=auth)
    before = len(api.requests)
    shop = Shop(store, document, call("create_refund", order=1, amount=2))
    asked = [event for event in await shop.say() if isinstance(event, ApprovalRequired)]
    assert len(api.requests) == before
    events = [event async for event in shop.agent.answer([asked[0].approval.answer(True)])]
    await shop.agent.close()
    assert [event.result for event in _results(events)] == [{"refunded": 2.0, "order": 1}]
    assert api.requests[before:] == ["POST /refunds"]


async def test_a_user_is_asked_for_a_credential_once(api: ShopApi, store: SqlSessionStore) -> None:
    document = _document(api, operations=("createRefund",), auth=ApiAuth(per_user=True))
    refund = call("create_refund", order=1, amount=2)
    shop = Shop(store, document, refund, "done", refund)
    (asked,) = [event for event in await shop.say() if isinstance(event, CredentialRequired)]
    assert (asked.request.kind, asked.request.name) == ("api_key", "create_refund")
    answer = asked.request.answer({"api_key": KEY})
    events = [event async for event in shop.agent.answer([answer])]
    assert [event.error for event in _results(events)] == [None]
    again = await shop.say("again")
    await shop.agent.close()
    assert [event.error for event in _results(again)] == [None]
    session = await load_session(store, SessionKey("", "root", "user", "default"), None)
    assert session is not None
    assert KEY not in session.model_dump_json()
    assert KEY not in await all_rows(cast(TurnProcess, SimpleNamespace(store=store)))


async def test_a_user_consents_to_oauth(api: ShopApi, store: SqlSessionStore) -> None:
    auth = ApiAuth(client_id="client", client_secret="hush-client", token_url=f"{api.url}/token")
    auth = replace(auth, authorization_url="https://accounts.example.com/authorize")
    shop = Shop(store, _document(api, auth=auth), call("get_account"))
    (asked,) = [event for event in await shop.say() if isinstance(event, CredentialRequired)]
    await shop.agent.close()
    address = httpx.URL(asked.request.auth_uri or "")
    assert address.host == "accounts.example.com"
    assert (address.params["client_id"], address.params["scope"]) == ("client", "read")
    assert address.params["redirect_uri"] == "http://127.0.0.1:1/v1/credentials/callback"


@pytest.mark.parametrize("where", ["document", "calls"])
async def test_private_addresses_are_refused_unless_configured(
    api: ShopApi, store: SqlSessionStore, tmp_path: Path, where: str
) -> None:
    document = _document(api, networks=())
    if where == "calls":
        file = tmp_path / "shop.json"
        async with httpx.AsyncClient() as web:
            file.write_text((await web.get(api.document)).text)
        document = OpenApiDocument("shop", file=file, base_url=api.url)
    before = len(api.requests)
    shop = Shop(store, document, *([call("go_elsewhere")] if where == "calls" else []))
    results = await shop.results()
    assert len(api.requests) == before
    if where == "calls":
        assert "is not a public address" in (results[0].error or "")
    else:
        assert shop.offered == []
        system = "".join(m.content for m in shop.model.requests[-1].messages if m.role == "system")
        assert "The tools of the API 'shop' cannot be reached at the moment." in system


@pytest.mark.parametrize(
    ("operation", "arguments", "error"),
    [
        ("go_elsewhere", {}, "Status Code: 307"),
        ("get_packed", {}, "The answer is packed (gzip)"),
        ("get_flood", {"size": 9 << 20}, "over 8 MiB"),
        ("get_slow", {}, "gave no answer within 1.5 seconds. It may have been done or not"),
    ],
)
async def test_answers_that_misbehave(
    api: ShopApi, store: SqlSessionStore, operation: str, arguments: Any, error: str
) -> None:
    document = _document(api, timeout=1.5 if operation == "get_slow" else 30.0)
    (result,) = await Shop(store, document, call(operation, **arguments)).results()
    assert error in (result.error or "")


async def test_a_long_answer_becomes_an_artifact(api: ShopApi, store: SqlSessionStore) -> None:
    (result,) = await Shop(store, _document(api), call("get_flood", size=300_000)).results()
    assert result.result is not None
    assert result.result["truncated"] is True
    assert str(result.result["artifact"]).startswith("get_flood-")


async def test_no_operation_replaces_a_tool_of_the_agent(
    api: ShopApi, store: SqlSessionStore
) -> None:
    def get_order(order_id: int) -> str:
        """The agent's own."""
        return f"own {order_id}"

    document = _document(api, operations=("getOrder", "getStock"), auth=ApiAuth(secret=TOKEN))
    script = [call("get_order", order_id=1), call("shop_get_order", order_id=2)]
    shop = Shop(store, document, *script, tools=[get_order])
    own, of_api = await shop.results()
    assert sorted(shop.offered) == ["get_order", "shop_get_order"]
    assert own.result == {"result": "own 1"}
    assert of_api.result is not None
    assert of_api.result["order"] == 2


async def test_an_unreachable_document_is_fetched_by_a_later_turn(
    api: ShopApi, store: SqlSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(
        store, _document(api, auth=ApiAuth(secret=TOKEN)), "no", call("get_order", order_id=1)
    )
    with monkeypatch.context() as broken:
        broken.setattr("lango.tools.checked_http.MAX_ANSWER", 10)
        await shop.say()
    assert shop.offered == []
    results = _results(await shop.say())
    await shop.agent.close()
    assert [event.error for event in results] == [None]


_DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "x", "version": "1"},
    "servers": [{"url": "https://api.example.com/v1"}],
    "paths": {"/a": {"get": {"operationId": "readA", "responses": {}}}},
}


def _file(folder: Path, **changes: Any) -> Path:
    file = folder / "api.json"
    file.write_text(json.dumps(_DOCUMENT | changes))
    return file


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({}, {"operations": ("readB",)}, "has no operation 'readB'; there are: readA."),
        ({}, {"require_confirmation": ("readB",)}, "has no operation 'readB'"),
        ({"servers": []}, {}, "names no server that calls can go to (''): set `base_url`."),
        ({"servers": [{"url": "/v1"}]}, {}, "set `base_url`"),
        ({"openapi": None, "paths": {"/a": 3}}, {}, "cannot be used"),
    ],
)
def test_a_file_is_checked_at_the_start(
    tmp_path: Path, changes: Any, options: Any, problem: str
) -> None:
    with pytest.raises(InvalidToolError) as raised:
        openapi_toolset(OpenApiDocument("x", file=_file(tmp_path, **changes), **options))
    assert problem in str(raised.value)


def test_a_file_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.0\ninfo: {title: x, version: '1'}\nservers: [{url: 'https://a.example'}]\n"
        "paths: {/a: {get: {operationId: readA, responses: {}}}}\n"
    )
    toolset = openapi_toolset(OpenApiDocument("x", file=file, prefix="my"))
    tools = asyncio.run(toolset.get_tools())
    assert [tool.name for tool in tools] == ["my_read_a"]
    assert tools[0].description == "GET /a"


@pytest.mark.parametrize(
    "stated",
    ["https://evil.example/v1", "//evil.example", "http://127.0.0.1:1/", "ftp://x"],
)
async def test_a_fetched_document_names_no_server_elsewhere(stated: str) -> None:
    """Its calls would carry the secret there."""
    document = OpenApiDocument("x", url="https://api.example.com/openapi.json")
    text = json.dumps(_DOCUMENT | {"servers": [{"url": stated}]})
    read = read_document(document, text)
    assert read.operations == ()
    assert "base_url" in read.problems[0]
    trusted = replace(document, base_url="https://evil.example/v1")
    assert [each.id for each in read_document(trusted, text).operations] == ["readA"]


async def test_a_path_cannot_lead_elsewhere(store: SqlSessionStore, tmp_path: Path) -> None:
    paths: dict[str, Any] = {"@127.0.0.1:9/a": {"get": {"operationId": "readA", "responses": {}}}}
    file = _file(tmp_path, paths=paths, servers=[{"url": "http://localhost"}])
    document = OpenApiDocument("x", file=file, networks=(*LOOPBACK, ip_network("::1/128")))
    (result,) = await Shop(store, document, call("read_a")).results()
    assert "are refused: only localhost is allowed" in (result.error or "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "needs either a file or a url."),
        ({"url": "ftp://x"}, "begins with neither"),
        ({"url": "https://x", "timeout": 0}, "has a timeout of 0"),
        ({"url": "https://x", "auth": ApiAuth()}, "needs either a secret"),
        ({"url": "https://x", "auth": ApiAuth(secret="s", per_user=True)}, "needs either a secret"),
        ({"url": "https://x", "auth": ApiAuth(per_user=True, header="X")}, "which need a secret"),
    ],
)
def test_settings_that_cannot_be_right(options: Any, problem: str) -> None:
    with pytest.raises(InvalidToolError) as raised:
        OpenApiDocument("x", **options)
    assert problem in str(raised.value)
