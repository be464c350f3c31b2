"""Tools that need a user's consent: asked, answered, resumed, refreshed."""

import logging
import sys
from asyncio.subprocess import create_subprocess_exec
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from faults.turns.workspace import TurnProcess, check_log, text_of, types_of
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
    process: TurnProcess, provider: OAuthProvider, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with_keys(process)
    async with worker(process, clerk(KINDS[kind](provider))):
        turn, auth_uri = await asked(process)
        log = await process.read(turn.id)
        check_log(log)
        (event,) = [each for each in log if each.type == "credential.required"]
        assert types_of(log)[-2:] == ["credential.required", "input_required"]
        assert event.data["credential"] == turn.waits_for[0]
        assert (event.data["kind"], event.data["auth_uri"]) == ("oauth2", auth_uri)
        assert event.data["name"] == ("FileToolset" if kind == "toolset" else "files")
        provider.lifetime = 30  # less than the minute before which a token is refreshed
        answer = await process.turns.answer_consent(*await consent(auth_uri))
        assert (await ended(process, answer.id)).state == "completed"
        assert "plans.txt" in text_of(await process.read(answer.id))
        assert (await process.turns.get(turn.id)).state == "answered"
        assert provider.refreshes >= 1, "the token was used though it expires"
        provider.lifetime = 3600
        # Another session of the user needs no consent; the token is refreshed once more.
        refreshes: list[int] = []
        for session in ("second", "third"):
            again = await ended(process, await process.say(GO, session=session))
            assert again.state == "completed", again.error
            assert "plans.txt" in text_of(await process.read(again.id))
            refreshes.append(provider.refreshes)
        assert refreshes[0] == refreshes[1], "a fresh token was refreshed"
    assert (provider.exchanges, provider.problems) == (1, [])
    logs = [record.getMessage() for record in caplog.records if record.name != BROWSER]
    everything = "\n".join([await all_rows(process), *logs])
    assert [secret for secret in provider.secrets if secret in everything] == []
    assert len(provider.secrets) > 5


async def test_a_killed_worker_s_request_is_answered(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    workspace = process.workspace
    arguments = (
        workspace.url,
        workspace.app,
        str(workspace.folder),
        provider.url,
        provider.client_secret,
    )
    with_keys(process)
    module = "tests.support.credential_worker"
    running = await create_subprocess_exec(sys.executable, "-m", module, *arguments)
    try:
        turn, auth_uri = await asked(process)
    finally:
        running.kill()
        await running.wait()
    answer = await process.turns.answer_consent(*await consent(auth_uri))
    assert answer.state == "queued"
    async with worker(process, clerk(authenticated(provider))):
        assert (await ended(process, answer.id)).state == "completed"
    assert "plans.txt" in text_of(await process.read(answer.id))
    assert provider.exchanges == 1
    assert (await process.turns.get(turn.id)).state == "answered"


async def test_a_useless_answer_is_refused_when_it_is_given(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    async with worker(process, clerk(authenticated(provider))):
        turn, auth_uri = await asked(process)
        call = turn.waits_for[0]
        state, url = await consent(auth_uri)
        for useless in (None, "", {}, {"api_key": "k"}, {"response_url": "https://x/?code=a"}):
            with pytest.raises(CredentialRefusedError):
                await process.turns.answer(turn.id, Answer(call, True, useless))
        with pytest.raises(CredentialRefusedError, match="gave no token"):
            await process.turns.answer(turn.id, Answer(call, True, {"code": "made-up"}))
        with pytest.raises(CredentialRefusedError, match="declined"):
            await process.turns.answer(turn.id, Answer(call, False))
        assert (await process.turns.get(turn.id)).state == "input_required"
        assert len(await process.turns.of_session(process.workspace.app)) == 1, "nothing was queued"
        answer = await process.turns.answer_consent(state, url)
        assert (await ended(process, answer.id)).state == "completed"
        with pytest.raises(CredentialNotFoundError):
            await process.turns.answer_consent(state, url)
    assert provider.exchanges == 1


async def test_a_consent_of_another_user_is_refused(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    async with worker(process, clerk(authenticated(provider))):
        _, anns = await asked(process, user="ann")
        bobs_turn, bobs = await asked(process, user="bob")
        state, url = await consent(anns)
        with pytest.raises(CredentialRefusedError, match="another request"):
            await process.turns.answer(
                bobs_turn.id, Answer(bobs_turn.waits_for[0], True, {"response_url": url})
            )
        with pytest.raises(CredentialNotFoundError):
            await process.turns.answer_consent("made-up", url)
        with pytest.raises(CredentialRefusedError, match="another request"):
            await process.turns.answer_consent(httpx.URL(bobs).params["state"], url)
        elsewhere = Turns(process.store, process.engine, tenant="another")
        with pytest.raises(CredentialNotFoundError):
            await elsewhere.answer_consent(state, url)
        answer = await process.turns.answer_consent(state, url)
        assert (await ended(process, answer.id)).state == "completed"
        assert (await process.turns.get(bobs_turn.id)).state == "input_required"
        credentials = process.store.credentials
        app = process.workspace.app  # other tests of this database have their own ann
        assert [each.kind for each in await credentials.list("", "ann", app)] == ["oauth2"]
        assert await credentials.list("", "bob", app) == []


async def test_without_keys_the_request_is_refused(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    async with worker(process, clerk(authenticated(provider))):
        turn = await ended(process, await process.say(GO))
    assert turn.state == "failed"
    assert turn.error is not None
    assert turn.error["type"] == CredentialsDisabledError.__name__
    assert "credentials.keys" in turn.error["message"]


async def test_keys_are_rotated_and_a_lost_key_asks_again(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    root = clerk(authenticated(provider))
    async with worker(process, root):
        _, auth_uri = await asked(process)
        answer = await process.turns.answer_consent(*await consent(auth_uri))
        assert (await ended(process, answer.id)).state == "completed"
    with_keys(process, OTHER_KEY, KEY)  # the new key encrypts what is read, the old one decrypts
    async with worker(process, root):
        assert (await ended(process, await process.say(GO))).state == "completed"
    with_keys(process, OTHER_KEY)
    async with worker(process, root):
        assert (await ended(process, await process.say(GO))).state == "completed"
    with_keys(process, KEY)
    async with worker(process, root):
        assert (await ended(process, await process.say(GO))).state == "input_required"


async def test_a_deleted_session_leaves_no_request(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    async with worker(process, clerk(authenticated(provider))):
        turn, auth_uri = await asked(process)
    assert await _requests(process) == 1
    await process.store.delete(turn.session)
    assert await _requests(process) == 0
    with pytest.raises(CredentialNotFoundError):
        await process.turns.answer_consent(*await consent(auth_uri))


async def _requests(process: TurnProcess) -> int:
    """How many consents the turns of this test have asked for."""
    rows = (await all_rows(process)).splitlines()
    return sum(
        row.startswith("credential_requests:") and process.workspace.app in row for row in rows
    )
