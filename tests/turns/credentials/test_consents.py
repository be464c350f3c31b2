"""Tools that need a user's consent: asked, answered, resumed, refreshed."""

import logging
import sys
from asyncio.subprocess import create_subprocess_exec
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from faults.turns.place import Process, check_log, text_of, types_of
from lango.core.turns.events import Answer
from lango.errors import (
    CredentialNotFoundError,
    CredentialRefusedError,
    CredentialsDisabledError,
)
from lango.turns.service import Turns
from tests.support.credential_agents import (
    KEY,
    FileToolset,
    asking,
    authenticated,
    clerk,
    openapi,
    with_keys,
    worker,
)
from tests.support.credential_turns import GO, all_rows, asked, consent, ended
from tests.support.oauth_provider import OAuthProvider, oauth_provider

pytestmark = [
    # ADK's AuthConfig calls its own deprecated method, its OpenAPI tools one of httpx.
    pytest.mark.filterwarnings(
        "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
    ),
    pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning"),
]

KINDS: dict[str, Callable[[OAuthProvider], Any]] = {
    "authenticated": authenticated,
    "asking": asking,
    "openapi": openapi,
    "toolset": FileToolset,
}
BROWSER = "httpcore.http11"  # the test's own client
OTHER_KEY = "zMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMw="


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_gets_the_token_of_a_consent(
    here: Process, provider: OAuthProvider, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with_keys(here)
    async with worker(here, clerk(KINDS[kind](provider))):
        turn, auth_uri = await asked(here)
        log = await here.read(turn.id)
        check_log(log)
        (event,) = [each for each in log if each.type == "credential.required"]
        assert types_of(log)[-2:] == ["credential.required", "input_required"]
        assert event.data["credential"] == turn.waits_for[0]
        assert (event.data["kind"], event.data["auth_uri"]) == ("oauth2", auth_uri)
        assert event.data["name"] == ("FileToolset" if kind == "toolset" else "files")
        provider.lifetime = 30  # less than the minute before which a token is refreshed
        answer = await here.turns.answer_consent(*await consent(auth_uri))
        assert (await ended(here, answer.id)).state == "completed"
        assert "plans.txt" in text_of(await here.read(answer.id))
        assert (await here.turns.get(turn.id)).state == "answered"
        assert provider.refreshes >= 1, "the token was used though it expires"
        provider.lifetime = 3600
        # Another session of the user needs no consent; the token is refreshed once more.
        refreshes: list[int] = []
        for session in ("second", "third"):
            again = await ended(here, await here.say(GO, session=session))
            assert again.state == "completed", again.error
            assert "plans.txt" in text_of(await here.read(again.id))
            refreshes.append(provider.refreshes)
        assert refreshes[0] == refreshes[1], "a fresh token was refreshed"
    assert (provider.exchanges, provider.problems) == (1, [])
    logs = [record.getMessage() for record in caplog.records if record.name != BROWSER]
    everything = "\n".join([await all_rows(here), *logs])
    assert [secret for secret in provider.secrets if secret in everything] == []
    assert len(provider.secrets) > 5


async def test_a_killed_worker_s_request_is_answered(
    here: Process, provider: OAuthProvider
) -> None:
    place = here.place
    arguments = (place.url, place.app, str(place.folder), provider.url, provider.client_secret)
    with_keys(here)
    module = "tests.support.credential_worker"
    running = await create_subprocess_exec(sys.executable, "-m", module, *arguments)
    try:
        turn, auth_uri = await asked(here)
    finally:
        running.kill()
        await running.wait()
    answer = await here.turns.answer_consent(*await consent(auth_uri))
    assert answer.state == "queued"
    async with worker(here, clerk(authenticated(provider))):
        assert (await ended(here, answer.id)).state == "completed"
    assert "plans.txt" in text_of(await here.read(answer.id))
    assert provider.exchanges == 1
    assert (await here.turns.get(turn.id)).state == "answered"


async def test_a_useless_answer_is_refused_when_it_is_given(
    here: Process, provider: OAuthProvider
) -> None:
    with_keys(here)
    async with worker(here, clerk(authenticated(provider))):
        turn, auth_uri = await asked(here)
        call = turn.waits_for[0]
        state, url = await consent(auth_uri)
        for useless in (None, "", {}, {"api_key": "k"}, {"response_url": "https://x/?code=a"}):
            with pytest.raises(CredentialRefusedError):
                await here.turns.answer(turn.id, Answer(call, True, useless))
        with pytest.raises(CredentialRefusedError, match="gave no token"):
            await here.turns.answer(turn.id, Answer(call, True, {"code": "made-up"}))
        with pytest.raises(CredentialRefusedError, match="declined"):
            await here.turns.answer(turn.id, Answer(call, False))
        assert (await here.turns.get(turn.id)).state == "input_required"
        assert len(await here.turns.of_session(here.place.app)) == 1, "nothing was queued"
        answer = await here.turns.answer_consent(state, url)
        assert (await ended(here, answer.id)).state == "completed"
        with pytest.raises(CredentialNotFoundError):
            await here.turns.answer_consent(state, url)
    assert provider.exchanges == 1


async def test_a_consent_of_another_user_is_refused(here: Process, provider: OAuthProvider) -> None:
    with_keys(here)
    async with worker(here, clerk(authenticated(provider))):
        _, anns = await asked(here, user="ann")
        bobs_turn, bobs = await asked(here, user="bob")
        state, url = await consent(anns)
        with pytest.raises(CredentialRefusedError, match="another request"):
            await here.turns.answer(
                bobs_turn.id, Answer(bobs_turn.waits_for[0], True, {"response_url": url})
            )
        with pytest.raises(CredentialNotFoundError):
            await here.turns.answer_consent("made-up", url)
        with pytest.raises(CredentialRefusedError, match="another request"):
            await here.turns.answer_consent(httpx.URL(bobs).params["state"], url)
        elsewhere = Turns(here.store, here.engine, tenant="another")
        with pytest.raises(CredentialNotFoundError):
            await elsewhere.answer_consent(state, url)
        answer = await here.turns.answer_consent(state, url)
        assert (await ended(here, answer.id)).state == "completed"
        assert (await here.turns.get(bobs_turn.id)).state == "input_required"
        credentials = here.store.credentials
        app = here.place.app  # other tests of this database have their own ann
        assert [each.kind for each in await credentials.list("", "ann", app)] == ["oauth2"]
        assert await credentials.list("", "bob", app) == []


async def test_without_keys_the_request_is_refused(here: Process, provider: OAuthProvider) -> None:
    async with worker(here, clerk(authenticated(provider))):
        turn = await ended(here, await here.say(GO))
    assert turn.state == "failed"
    assert turn.error is not None
    assert turn.error["type"] == CredentialsDisabledError.__name__
    assert "credentials.keys" in turn.error["message"]


async def test_keys_are_rotated_and_a_lost_key_asks_again(
    here: Process, provider: OAuthProvider
) -> None:
    with_keys(here)
    root = clerk(authenticated(provider))
    async with worker(here, root):
        _, auth_uri = await asked(here)
        answer = await here.turns.answer_consent(*await consent(auth_uri))
        assert (await ended(here, answer.id)).state == "completed"
    with_keys(here, OTHER_KEY, KEY)  # the new key encrypts what is read, the old one decrypts
    async with worker(here, root):
        assert (await ended(here, await here.say(GO))).state == "completed"
    with_keys(here, OTHER_KEY)
    async with worker(here, root):
        assert (await ended(here, await here.say(GO))).state == "completed"
    with_keys(here, KEY)
    async with worker(here, root):
        assert (await ended(here, await here.say(GO))).state == "input_required"


async def test_a_deleted_session_leaves_no_request(here: Process, provider: OAuthProvider) -> None:
    with_keys(here)
    async with worker(here, clerk(authenticated(provider))):
        turn, auth_uri = await asked(here)
    assert await _requests(here) == 1
    await here.store.delete(turn.session)
    assert await _requests(here) == 0
    with pytest.raises(CredentialNotFoundError):
        await here.turns.answer_consent(*await consent(auth_uri))


async def _requests(here: Process) -> int:
    """How many consents the turns of this test have asked for."""
    rows = (await all_rows(here)).splitlines()
    return sum(row.startswith("credential_requests:") and here.place.app in row for row in rows)
