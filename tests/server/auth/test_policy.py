"""A server is never open by accident."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI

from lango.config.settings import Settings
from lango.core.keys import KeyText
from lango.errors import ConfigError
from lango.server.auth.policy import AuthPolicy, identity_for
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore
from tests.server.auth.issuers import AUDIENCE, issuing, new_key
from tests.server.auth_app import auth_app, refused, request_to

EVERYWHERE = "0.0.0.0"  # noqa: S104
CONSOLE = (f"The console is at http://{EVERYWHERE}:8000/console/.",)
LOOPBACKS = ["127.0.0.1", "localhost", "::1"]
MINE: dict[str, Any] = {"tenant": "", "user": "user", "scopes": ["act_as", "admin", "chat"]}


@pytest_asyncio.fixture
async def store(sqlite_url: str) -> AsyncIterator[SqlSessionStore]:
    async with SqlSessionStore(sqlite_url) as opened:
        yield opened


async def opened(
    kept: SqlSessionStore, host: str, /, *, insecure: bool = False, **settings: Any
) -> AuthPolicy:
    loaded = Settings.model_validate(settings)
    return await identity_for(loaded, kept, host=host, port=8000, insecure=insecure)


async def who(app: FastAPI, bearer: str | None = None) -> dict[str, Any]:
    answer = await request_to(app, bearer=bearer)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("host", LOOPBACKS)
async def test_without_credentials_there_is_a_key_for_the_run(
    store: SqlSessionStore, host: str
) -> None:
    keeper = await opened(store, host, store={"tenant": "acme"})
    shown = f"[{host}]" if ":" in host else host
    command = rf"  curl -H 'Authorization: Bearer (\S+)' http://{re.escape(shown)}:8000/v1/agents"
    found = re.fullmatch(command, keeper.lines[-1])
    assert found is not None
    assert keeper.lines[-2] == f"  http://{shown}:8000/console/#key={found[1]}"
    app = auth_app(keeper.identity)
    result = await who(app, found[1])
    assert result == {**MINE, "tenant": "acme", "key_id": "this-run"}
    refused(await request_to(app), 401, "needs an API key")
    refused(await request_to(app, bearer=KeyText.new().text), 401, "unknown here")
    nearly = found[1][:-1] + ("A" if found[1][-1] != "A" else "B")
    refused(await request_to(app, bearer=nearly), 401, "unknown here")
    refused(await request_to(app, f"/who?key={found[1]}"), 401, "does not belong in a URL")


async def test_the_key_of_a_run_is_another_each_time(store: SqlSessionStore) -> None:
    first, second = [await opened(store, "127.0.0.1") for _ in range(2)]
    assert first.lines[-1] != second.lines[-1]
    assert not await KeyStore(store.database).any()  # it is nowhere but here


async def test_a_key_that_is_made_meanwhile_works(store: SqlSessionStore, tenant: str) -> None:
    app = auth_app((await opened(store, "127.0.0.1")).identity)
    made = await KeyStore(store.database).create(tenant, user="ann")
    assert (await who(app, made.text))["user"] == "ann"


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "10.0.0.7", "example.com", ""])
async def test_others_could_come_in(store: SqlSessionStore, host: str) -> None:
    with pytest.raises(ConfigError, match=r"no credential .* `lango keys create`"):
        await opened(store, host)
    with pytest.raises(ConfigError, match="loopback addresses only"):
        await opened(store, host, insecure=True)


async def test_with_a_key_it_may_serve_everyone(store: SqlSessionStore, tenant: str) -> None:
    keys = KeyStore(store.database)
    made = await keys.create(tenant, user="ann")
    keeper = await opened(store, EVERYWHERE)
    assert keeper.lines == CONSOLE
    app = auth_app(keeper.identity)
    assert (await who(app, made.text))["tenant"] == tenant
    await keys.revoke(tenant, made.key.id)
    assert (await opened(store, EVERYWHERE)).lines == CONSOLE  # closed to all, not open to some
    with pytest.raises(ConfigError, match="loopback addresses only"):
        await opened(store, EVERYWHERE, insecure=True)


async def test_with_an_issuer_it_may_serve_everyone(store: SqlSessionStore) -> None:
    async with issuing(new_key("ES256")) as issuer:
        oidc = {"issuer": issuer.url, "audience": AUDIENCE}
        keeper = await opened(store, EVERYWHERE, server={"oidc": oidc})
        assert keeper.lines == CONSOLE
        app = auth_app(keeper.identity)
        assert (await who(app, issuer.token()))["user"] == "ann"
        refused(await request_to(app), 401, "needs an API key or a token")


@pytest.mark.parametrize("host", LOOPBACKS)
async def test_no_auth_on_this_machine(store: SqlSessionStore, host: str) -> None:
    keeper = await opened(store, host, insecure=True)
    assert "has no authentication" in "".join(keeper.lines)
    app = auth_app(keeper.identity)
    assert await who(app) == {**MINE, "key_id": "this-run"}
    answer = await request_to(app, headers={"lango-user": "zoe", "origin": "http://localhost:8000"})
    assert answer.json()["user"] == "zoe"
    for name in ("127.0.0.1:8000", "[::1]:8000", "localhost"):
        assert (await request_to(app, host=name)).status_code == 200


FROM_ELSEWHERE: list[tuple[str, str, str]] = [
    ("forwarded", "for=10.0.0.7", "proxy"),
    ("x-forwarded-for", "10.0.0.7", "proxy"),
    ("X-Forwarded-Host", "localhost", "proxy"),
    ("x-forwarded-proto", "https", "proxy"),
    ("x-forwarded-anything", "", "proxy"),
    ("host", "evil.example", "no other host"),
    ("host", "localhost.evil.example:8000", "no other host"),
    ("host", "", "no other host"),
    ("host", "[::1", "another site"),
    ("origin", "https://evil.example", "another site"),
    ("origin", "http://localhost:3000", "another site"),
    ("origin", "http://localhost", "another site"),
    ("origin", "http://localhost:8000.evil.example", "another site"),
    ("origin", "null", "another site"),
    ("origin", "http://[::1", "another site"),
]


@pytest.mark.parametrize(("header", "value", "words"), FROM_ELSEWHERE)
async def test_no_auth_takes_nothing_from_elsewhere(
    store: SqlSessionStore, header: str, value: str, words: str
) -> None:
    app = auth_app((await opened(store, "127.0.0.1", insecure=True)).identity)
    sent = {"origin": "http://localhost:8000", header: value}
    for path, method in (("/who", "GET"), ("/turn", "POST")):
        refused(await request_to(app, path, method=method, headers=sent), 403, words)


async def test_no_auth_takes_nothing_from_another_machine(store: SqlSessionStore) -> None:
    app = auth_app((await opened(store, "127.0.0.1", insecure=True)).identity)
    refused(await request_to(app, client=("10.0.0.7", 4000)), 403, "another machine")
