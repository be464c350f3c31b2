"""OpenAI's SDK sends a request again by itself: where that helps, and never a turn that has run."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio
from fastapi import Request

from lango.errors import KeyLimitError, LangoError, ServerBusyError
from lango.server.auth.callers import Caller
from lango.server.backend import services_of
from tests.server.openai.clients import answered, sdk, user
from tests.server.openai.test_turns import HOLD, held
from tests.server.served_apps import Live, ServedApp, live, served_app

REFUSALS = {
    429: KeyLimitError("Too many.", limit="turns", retry_after=0.1),
    503: ServerBusyError(),
}


@pytest_asyncio.fixture
async def server(sqlite_served: ServedApp) -> AsyncIterator[Live]:
    async with live(sqlite_served, sqlite_served.worker()) as opened:
        yield opened


async def turns_of(served: ServedApp) -> int:
    page = await served.process.store.page(served.tenant, served.agent)
    return len(page.items)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=map(str, REFUSALS))
async def test_a_request_that_was_refused_is_sent_again(
    refusal: LangoError, server: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, texts = server.served, list[str]()
    known = served.app.state.identity.caller

    async def refusing(request: Request) -> Caller:
        texts.append(request.headers["x-stainless-retry-count"])
        if len(texts) == 1:
            raise refusal
        return await known(request)

    monkeypatch.setattr(served.app.state.identity, "caller", refusing)
    async with sdk(server, retries=2) as client:
        assert await answered(client, served.agent, [user("hi")]) == "You said: hi"
    assert texts == ["0", "1"]
    assert await turns_of(served) == 1


async def test_a_turn_that_has_run_is_not(server: Live) -> None:
    served = server.served
    async with sdk(server, retries=2) as client:
        asking, turn = await held(server, client, stream=False)
        await served.turns().cancel(turn.id)
        with pytest.raises(openai.UnprocessableEntityError) as raised:
            await asking
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert await turns_of(served) == 1


async def test_its_status_is_one_that_no_client_retries(server: Live) -> None:
    """Vercel's AI SDK and proxies decide by the status alone, and do not read X-Should-Retry."""
    async with sdk(server) as client:
        asking, turn = await held(server, client, stream=False)
        await server.served.turns().cancel(turn.id)
        with pytest.raises(openai.APIStatusError) as raised:
            await asking
    status = raised.value.status_code
    assert status < 500
    assert status not in (408, 409, 425, 429)


async def test_with_the_status_of_a_server_error_it_would_be(
    server: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.server.openai.errors.NO_RETRY", {})
    monkeypatch.setattr("lango.server.openai.errors.TURN_ERROR_STATUS", 500)
    served = server.served
    async with sdk(server, retries=1) as client:
        asking, turn = await held(server, client, stream=False)
        await served.turns().cancel(turn.id)
        assert (await served.turns().wait(turn.id)).state == "cancelled"
        (served.process.workspace.folder / "go").touch()  # what is asked anew need not wait
        [result] = await asking
    assert isinstance(result.choices[0].message.content, str)
    assert await turns_of(served) == 2


@pytest.mark.parametrize("key", [None, "k"], ids=["no key", "key"])
async def test_a_request_that_a_stopping_server_ends_never_runs_twice(
    key: str | None, sqlite_served: ServedApp
) -> None:
    async with (
        live(sqlite_served, sqlite_served.worker()) as server,
        sdk(server, retries=2) as client,
    ):
        headers = {} if key is None else {"Idempotency-Key": key}
        asking, turn = await held(server, client, stream=False, extra_headers=headers)
        services_of(sqlite_served.app).streams.drain()
        with pytest.raises(openai.APIStatusError) as raised:  # its retries are refused
            await asking
        assert raised.value.status_code == (422 if key is None else 503)
        (sqlite_served.process.workspace.folder / "go").touch()
        assert (await sqlite_served.turns().wait(turn.id)).state == "completed"
    if key is not None:
        async with (
            served_app(sqlite_served.process.workspace, sqlite_served.tenant) as other,
            live(other) as server,
            sdk(server) as client,
        ):
            await answered(client, sqlite_served.agent, [user(HOLD)], extra_headers=headers)
    assert await turns_of(sqlite_served) == 1
    assert sqlite_served.process.workspace.effects.words() == ["held go", "released go"]
