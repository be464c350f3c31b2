"""Answers with credentials: one of them counts, a code is sent once, requests expire."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from faults.turns.workspace import TurnProcess
from lango.core.turns.events import Answer
from lango.errors import CredentialNotFoundError, CredentialRefusedError, TurnConflictError
from lango.store.credentials.store import CLAIM_LASTS, REQUEST_LASTS, Owner
from lango.store.schema.tables import credential_requests
from tests.support.credential_agents import (
    asking,
    authenticated,
    clerk,
    key_config,
    with_keys,
    worker,
)
from tests.support.credential_turns import GO, asked, consent, ended
from tests.support.oauth_provider import OAuthProvider, oauth_provider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)
OTHER_KEY = "zMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMw="


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider() as running:
        yield running


async def states(process: TurnProcess) -> list[str]:
    """The states of the requests that this test's turns have made."""
    table = credential_requests.c

    async def once(connection: Any) -> list[str]:
        rows = await connection.execute(
            sa.select(table.state).where(table.app_name == process.workspace.app)
        )
        return list(rows.scalars())

    return await process.store.database.read(once)


async def change_requests(process: TurnProcess, **values: Any) -> None:
    statement = sa.update(credential_requests).values(**values)

    async def once(connection: Any) -> None:
        await connection.execute(
            statement.where(credential_requests.c.app_name == process.workspace.app)
        )

    await process.store.database.write(once)


async def test_the_refused_one_of_two_answers_is_not_used(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    async with worker(process, clerk(asking(provider, key_config()))):
        turn = await ended(process, await process.say(GO))
        call = turn.waits_for[0]
        at_gate, gate = asyncio.Event(), asyncio.Event()

        async def admit() -> None:
            at_gate.set()
            await gate.wait()

        late = asyncio.create_task(
            process.turns.answer(turn.id, Answer(call, True, {"api_key": "hush-late"}), admit=admit)
        )
        await at_gate.wait()
        accepted = await process.turns.answer(
            turn.id, Answer(call, True, {"api_key": "hush-first"})
        )
        gate.set()
        with pytest.raises(TurnConflictError):
            await late
        assert (await ended(process, accepted.id)).state == "completed"
    owner = Owner("", process.workspace.app, turn.session.user_id)
    (stored,) = await process.store.credentials.of_owner(owner)
    assert "hush-first" in stored.text
    assert "hush-late" not in stored.text


async def test_a_code_is_sent_once(
    process: TurnProcess, provider: OAuthProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(process)
    at_gate, gate = threading.Event(), threading.Event()
    exchange, codes = provider.token, list[str]()

    def held(form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        codes.append(form.get("code", ""))
        at_gate.set()
        gate.wait(60)
        return exchange(form, authorization)

    async with worker(process, clerk(asking(provider))):
        turn, auth_uri = await asked(process)
        state, url = await consent(auth_uri)
        monkeypatch.setattr(provider, "token", held)
        first = asyncio.create_task(process.turns.answer_consent(state, url))
        try:
            assert await asyncio.to_thread(at_gate.wait, 60)
            with pytest.raises(TurnConflictError, match="being exchanged"):
                await process.turns.answer_consent(state, url)
        finally:
            gate.set()
        answer = await first
        assert (await ended(process, answer.id)).state == "completed"
    assert (len(codes), provider.exchanges, provider.problems) == (1, 1, [])
    assert await states(process) == [], "the request was left after its answer"
    with pytest.raises(CredentialNotFoundError):
        await process.turns.answer_consent(state, url)
    with pytest.raises(TurnConflictError):
        await process.turns.answer(turn.id, Answer(turn.waits_for[0], True, {"code": "again"}))


async def test_the_claim_of_a_dead_process_ends(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    async with worker(process, clerk(authenticated(provider))):
        turn, auth_uri = await asked(process)
        state, url = await consent(auth_uri)
        owner = Owner("", process.workspace.app, turn.session.user_id)
        credentials = process.store.credentials
        assert (
            await credentials.claim_request(Owner("", process.workspace.app, "bob"), state) is None
        )
        assert await credentials.claim_request(owner, state) is not None
        assert await credentials.claim_request(owner, state) is None
        with pytest.raises(TurnConflictError):
            await process.turns.answer_consent(state, url)
        await change_requests(process, claimed=datetime.now(UTC) - CLAIM_LASTS * 2)
        answer = await process.turns.answer_consent(state, url)
        assert (await ended(process, answer.id)).state == "completed"


async def test_without_its_request_no_code_is_sent(
    process: TurnProcess, provider: OAuthProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(process)
    async with worker(process, clerk(asking(provider))):
        turn, auth_uri = await asked(process)
    _, url = await consent(auth_uri)
    sent: list[dict[str, str]] = []

    def refuse(form: dict[str, str], authorization: str) -> None:
        del authorization
        sent.append(form)

    monkeypatch.setattr(provider, "token", refuse)
    answer = Answer(turn.waits_for[0], True, {"response_url": url})
    with_keys(process, OTHER_KEY)  # the key that encrypted the request is lost
    with pytest.raises(CredentialRefusedError, match="decrypted"):
        await process.turns.answer(turn.id, answer)
    with_keys(process)
    await change_requests(process, user_id="bob")  # as good as no row
    with pytest.raises(CredentialRefusedError, match="expired"):
        await process.turns.answer(turn.id, answer)
    assert sent == []
    assert (await process.turns.get(turn.id)).state == "input_required"


async def test_a_request_expires(process: TurnProcess, provider: OAuthProvider) -> None:
    with_keys(process)
    async with worker(process, clerk(asking(provider))):
        turn, auth_uri = await asked(process)
        state, url = await consent(auth_uri)
        late = datetime.now(UTC) - REQUEST_LASTS - timedelta(minutes=1)
        await change_requests(process, created=late)
        with pytest.raises(CredentialNotFoundError):
            await process.turns.answer_consent(state, url)
        with pytest.raises(CredentialRefusedError, match="expired"):
            await process.turns.answer(
                turn.id, Answer(turn.waits_for[0], True, {"response_url": url})
            )
        assert provider.exchanges == 0
        assert await states(process) == [state]
        _, auth_uri = await asked(process, session="second")
        again, url = await consent(auth_uri)
        assert await states(process) == [again], "the expired request was left"
        answer = await process.turns.answer_consent(again, url)
        assert (await ended(process, answer.id)).state == "completed"
