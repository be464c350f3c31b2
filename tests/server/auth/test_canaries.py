"""Secrets are sent in every wrong way there is, and then looked for in every answer and log."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from faults.turns.workspace import TurnProcess, Workspace, turn_process
from lango.core.keys import KeyText
from lango.server.auth.identity import Credentials, Keys
from lango.server.listening import listen
from lango.server.process import StopSignal, serve
from lango.store.sessions.store import SqlSessionStore
from tests.server.auth.canaries import (
    REQUESTS,
    Canaries,
    app_of,
    credentials,
    listening,
    say,
    send_everywhere,
)
from tests.server.auth.issuers import Issuer, issuing, new_key
from tests.server.auth_app import auth_app, refused, request_to
from tests.server.served_apps import ServedApp

PASSWORD = "pw-canary-1b6f"


@pytest.fixture
def canaries() -> Iterator[Canaries]:
    with listening() as opened:
        yield opened


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing(new_key("ES256")) as opened:
        yield opened


@pytest_asyncio.fixture
async def process(workspace: Workspace) -> AsyncIterator[TurnProcess]:
    async with turn_process(workspace, dead_after=60.0) as opened:
        yield opened


@pytest.mark.parametrize("where", ["log", "body"])
def test_a_leak_would_be_seen(canaries: Canaries, where: str) -> None:
    text = canaries.plant(KeyText.new().text)
    if where == "log":
        logging.getLogger("lango.server").debug("the secret is %s", text[-43:])
    else:
        canaries.saw(httpx.Response(400, text=f"no such key: {text}"))
    assert canaries.leaks() != []


@pytest.mark.parametrize("number", range(len(REQUESTS)))
async def test_no_answer_and_no_log_holds_a_credential(
    process: TurnProcess, issuer: Issuer, canaries: Canaries, tenant: str, number: int
) -> None:
    texts = await credentials(process, issuer, canaries, tenant)
    statuses = await send_everywhere(app_of(process, issuer), number, texts, canaries)
    assert max(statuses) < 500
    assert canaries.leaks() == []


async def test_what_is_said_is_in_no_log(canaries: Canaries, served: ServedApp) -> None:
    await say(served, canaries)
    assert canaries.leaks() == []


async def test_an_issuer_that_is_down(
    process: TurnProcess, issuer: Issuer, canaries: Canaries, tenant: str
) -> None:
    transport = httpx.ASGITransport(app_of(process, issuer))
    texts = await credentials(process, issuer, canaries, tenant)
    await issuer.stop()
    statuses: set[int] = set()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for text in texts:
            headers = {"authorization": f"Bearer {text}"}
            answer = canaries.saw(await client.get("/v1/agents", headers=headers))
            statuses.add(answer.status_code)
    assert 503 in statuses
    assert canaries.leaks() == []


async def test_a_database_that_is_down(canaries: Canaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.store.db.retry.RETRIES", 1)
    store = SqlSessionStore(f"postgresql://ann:{PASSWORD}@127.0.0.1:1/none")
    app = auth_app(Credentials(Keys(store.database)))
    canaries.secrets.append(PASSWORD)
    answer = await request_to(app, bearer=canaries.plant(KeyText.new().text))
    refused(canaries.saw(answer), 503, "database")
    assert answer.json()["error_id"] in "".join(canaries.logs)
    assert canaries.leaks() == []


async def test_over_a_real_connection(
    process: TurnProcess, issuer: Issuer, canaries: Canaries, tenant: str
) -> None:
    listening, stop, ready = listen("127.0.0.1", 0), StopSignal(), asyncio.Event()
    port = listening.getsockname()[1]
    app = app_of(process, issuer)
    serving = asyncio.create_task(serve(app, listening, stop=stop, on_ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        for text in await credentials(process, issuer, canaries, tenant):
            for broken in (
                f"GET /v1/agents?key={text} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                f"GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {text}\r\n\r\n",
                f"GET /v1/agents HTTP/1.1\r\nAuthorization {text}\r\n\r\n",
                f"{text}\r\n\r\n",
            ):
                canaries.bodies.append(await _sent(port, broken))
    finally:
        waiting.cancel()
        stop.ask()
        await serving
    assert canaries.leaks() == []


async def _sent(port: int, text: str) -> str:
    """What a server says to raw bytes, up to the end of the first answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return head.decode("latin-1") + (await reader.read(4096)).decode("latin-1")
    except asyncio.IncompleteReadError as ended:
        return ended.partial.decode("latin-1")
    finally:
        writer.close()
        await writer.wait_closed()
