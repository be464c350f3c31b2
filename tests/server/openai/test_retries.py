"""OpenAI's SDK sends a request again by itself: where that helps, and never a turn that has run."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio
from fastapi import Request

from lango.errors import KeyLimitError, LangoError, ServerBusyError
from lango.server.auth.callers import Caller
from tests.server.openai.clients import answered, sdk, user
from tests.server.openai.test_turns import held
from tests.server.places import House, Live, live

REFUSALS = {
    429: KeyLimitError("Too many.", limit="turns", retry_after=0.1),
    503: ServerBusyError(),
}


@pytest_asyncio.fixture
async def server(small: House) -> AsyncIterator[Live]:
    async with live(small, small.worker()) as opened:
        yield opened


async def turns_of(house: House) -> int:
    page = await house.here.store.page(house.tenant, house.agent)
    return len(page.items)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=map(str, REFUSALS))
async def test_a_request_that_was_refused_is_sent_again(
    refusal: LangoError, server: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, asked = server.house, list[str]()
    known = house.app.state.identity.caller

    async def refusing(request: Request) -> Caller:
        asked.append(request.headers["x-stainless-retry-count"])
        if len(asked) == 1:
            raise refusal
        return await known(request)

    monkeypatch.setattr(house.app.state.identity, "caller", refusing)
    async with sdk(server, retries=2) as client:
        assert await answered(client, house.agent, [user("hi")]) == "You said: hi"
    assert asked == ["0", "1"]
    assert await turns_of(house) == 1


async def test_a_turn_that_has_run_is_not(server: Live) -> None:
    house = server.house
    async with sdk(server, retries=2) as client:
        asking, turn = await held(server, client, stream=False)
        await house.turns().cancel(turn.id)
        with pytest.raises(openai.InternalServerError) as raised:
            await asking
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert await turns_of(house) == 1


async def test_without_that_word_it_would_be(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.server.openai.answers.NO_RETRY", {})
    house = server.house
    async with sdk(server, retries=1) as client:
        asking, turn = await held(server, client, stream=False)
        await house.turns().cancel(turn.id)
        (house.here.place.folder / "go").touch()  # what is asked anew need not wait
        [told] = await asking
    assert isinstance(told.choices[0].message.content, str)
    assert await turns_of(house) == 2
