"""The credentials of a turn: who refreshes them, which requests are whose, what tools get."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_tool import AuthConfig

from faults.turns.workspace import TurnProcess
from lango.adk.credentials.answers import read_config
from lango.adk.credentials.kinds import state_of
from lango.adk.credentials.service import SqlCredentialService
from lango.adk.credentials.turn import (
    TurnCredentials,
    dumped,
    install_patch,
    turn_credentials,
)
from lango.errors import CredentialRefusedError
from lango.store.credentials.store import ConsentRequest, Owner, SqlCredentialStore
from lango.store.sessions.store import SqlSessionStore
from tests.support.credential_agents import KEY, PUBLIC_URL, key_config, oauth_config, with_keys
from tests.support.oauth_provider import OAuthProvider, oauth_provider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)
NAME = "files"
OTHER_KEY = "zMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMzMw="


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider() as running:
        yield running


def owner_of(process: TurnProcess, user: str = "ann") -> Owner:
    return Owner("", process.workspace.app, user)


def turn_of(process: TurnProcess, user: str = "ann", turn: str = "turn-1") -> TurnCredentials:
    return TurnCredentials(process.store.credentials, owner_of(process, user), 1, turn)


async def stored(
    process: TurnProcess, provider: OAuthProvider, expires_at: float = 0
) -> AuthConfig:
    """Store a credential of ann, which by default has expired."""
    with_keys(process)
    config = oauth_config(provider)
    config.credential_key = NAME
    tokens = OAuth2Auth(
        client_id="client-of-the-tests",
        access_token="hush-old",
        refresh_token="hush-refresh",
        expires_at=int(expires_at or time.time() - 5),
    )
    provider.refreshing.add("hush-refresh")
    config.exchanged_auth_credential = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=tokens
    )
    await process.store.credentials.save(owner_of(process), NAME, dumped(config), "oauth2")
    return config


async def test_one_turn_refreshes_and_the_others_wait(
    process: TurnProcess, provider: OAuthProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(process, provider)
    requested, go, issue = threading.Event(), threading.Event(), provider.token

    def held(form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        requested.set()
        assert go.wait(60)
        return issue(form, authorization)

    monkeypatch.setattr(provider, "token", held)
    one, two = turn_of(process), turn_of(process, turn="turn-2")
    await one.load()
    await two.load()
    first = asyncio.create_task(one.refresh())
    try:
        assert await asyncio.to_thread(requested.wait, 60)
        waits, replaced, read = asyncio.Event(), asyncio.Event(), two.read

        async def seen(name: str) -> AuthConfig | None:
            waits.set()
            await replaced.wait()  # a store without the new key could not decrypt it
            return await read(name)

        monkeypatch.setattr(two, "read", seen)
        second = asyncio.create_task(two.refresh())
        async with asyncio.timeout(60):
            await waits.wait()
        # A key that is replaced meanwhile leaves the claim and the version as they are.
        keys = (OTHER_KEY, KEY)
        rotated = SqlCredentialStore(process.store.database, keys, PUBLIC_URL)
        assert await rotated.get(owner_of(process), NAME) is not None
        process.store.credentials = one.store = two.store = rotated
        replaced.set()
    finally:
        go.set()
    await asyncio.gather(first, second)
    assert (provider.refreshes, provider.problems) == (1, [])
    for turn in (one, two):
        credential = turn.get(NAME)
        assert credential is not None
        assert credential.oauth2 is not None
        assert credential.oauth2.access_token in provider.valid


async def test_a_dead_worker_s_claim_ends(process: TurnProcess, provider: OAuthProvider) -> None:
    await stored(process, provider)
    credentials, owner = process.store.credentials, owner_of(process)
    assert await credentials.claim_refresh(owner, NAME, 1)
    assert not await credentials.claim_refresh(owner, NAME, 1)
    await credentials.release_refresh(owner, NAME, 1)
    assert not await credentials.claim_refresh(owner, NAME, 2)
    assert await credentials.claim_refresh(owner, NAME, 1)


async def test_a_refused_refresh_asks_again(process: TurnProcess, provider: OAuthProvider) -> None:
    await stored(process, provider)
    provider.refreshing.clear()
    turn = turn_of(process)
    await turn.load()
    assert turn.get(NAME) is not None
    await turn.refresh()
    assert turn.get(NAME) is None
    assert provider.problems == ["used refresh token"]
    assert await process.store.credentials.list("", "ann", process.workspace.app) == []


@pytest.mark.parametrize("error", ["down", "client", "early"])
async def test_a_refresh_that_may_succeed_later_keeps_the_credential(
    process: TurnProcess, provider: OAuthProvider, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = await stored(process, provider, time.time() + 30 if error == "early" else 0)
    if error == "early":
        provider.refreshing.clear()
    elif error == "client":

        def refuse(*_: str) -> dict[str, Any]:
            return {"error": "invalid_client"}

        monkeypatch.setattr(provider, "token", refuse)
    else:
        scheme: Any = config.auth_scheme
        scheme.flows.authorizationCode.tokenUrl = "http://127.0.0.1:9/token"
        await process.store.credentials.save(owner_of(process), NAME, dumped(config), "oauth2")
    turn = turn_of(process)
    await turn.load()
    async with asyncio.timeout(30):
        await turn.refresh()
        await turn.refresh()  # the claim was released
    assert turn.get(NAME) is not None
    assert len(await process.store.credentials.list("", "ann", process.workspace.app)) == 1


async def test_an_expired_token_without_refresh_token_counts_as_not_given(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    config = await stored(process, provider)
    assert config.exchanged_auth_credential is not None
    assert config.exchanged_auth_credential.oauth2 is not None
    config.exchanged_auth_credential.oauth2.refresh_token = None
    await process.store.credentials.save(owner_of(process), NAME, dumped(config), "oauth2")
    turn = turn_of(process)
    await turn.load()
    assert turn.get(NAME) is None


async def test_adk_gets_no_refresh_token_and_no_client_secret(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    config = await stored(process, provider)
    service, context = SqlCredentialService(process.store), Context(process.workspace.app, "ann")
    turn = turn_of(process)
    turn_credentials.set(turn)
    try:
        found = await service.load_credential(config, cast(CallbackContext, context))
    finally:
        turn_credentials.set(None)
    assert found is not None
    assert found.oauth2 is not None
    assert found.oauth2.access_token in provider.valid
    assert (found.oauth2.refresh_token, found.oauth2.client_secret) == (None, None)
    assert provider.client_secret not in found.model_dump_json()


class Context:
    """What the service takes of ADK's context."""

    def __init__(self, app_name: str, user_id: str) -> None:
        self.app_name = app_name
        self.user_id = user_id
        self.session = self
        self.invocation_id = "turn-1"


async def test_a_long_name_is_found(process: TurnProcess) -> None:
    with_keys(process)
    name = "k" * 600
    config = key_config()
    config.exchanged_auth_credential = AuthCredential(
        auth_type=AuthCredentialTypes.API_KEY, api_key="hush-key"
    )
    one = turn_of(process)
    await one.save(name, config)
    two = turn_of(process)
    await two.load()
    for turn in (one, two):
        assert turn.get(name) is not None
        assert await turn.read(name) is not None


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_node_that_asks_with_a_tool_s_request_keeps_its_secrets(
    process: TurnProcess, provider: OAuthProvider, restarted: bool
) -> None:
    with_keys(process)
    turn = turn_of(process)
    shown = turn.request(oauth_config(provider))
    if restarted:
        await turn.flush()
        turn = turn_of(process)
        await turn.load(has_begun=True)
    again = turn.request(shown)
    await turn.flush()
    assert state_of(again) == state_of(shown)
    found = await process.store.credentials.find_request(state_of(shown) or "")
    assert found is not None
    private = read_config(found.text)
    assert private.raw_auth_credential is not None
    assert private.raw_auth_credential.oauth2 is not None
    assert private.raw_auth_credential.oauth2.client_secret == provider.client_secret
    assert private.exchanged_auth_credential is not None
    assert private.exchanged_auth_credential.oauth2 is not None
    assert private.exchanged_auth_credential.oauth2.code_verifier
    assert provider.client_secret not in dumped(shown)


async def test_a_tool_s_own_state_is_not_used(
    process: TurnProcess, provider: OAuthProvider
) -> None:
    with_keys(process)
    config = oauth_config(provider, auth_uri=f"{provider.url}/authorize?state=fixed", state="fixed")
    states: list[str | None] = []
    for user in ("ann", "bob"):
        turn = turn_of(process, user, f"of-{user}")
        shown = turn.request(config)
        await turn.flush()
        states.append(state_of(shown))
        found = await process.store.credentials.find_request(state_of(shown) or "")
        assert found is not None
        assert found.owner == owner_of(process, user)
    assert len({"fixed", *states}) == 3


async def test_a_state_of_another_request_is_refused(process: TurnProcess) -> None:
    with_keys(process)
    add, state = process.store.credentials.add_request, f"state-of-{process.workspace.app}"
    await add(ConsentRequest(state, owner_of(process), 1, "t", "{}"))
    await add(ConsentRequest(state, owner_of(process), 1, "t", "{}"))
    for owner, turn in ((owner_of(process, "bob"), "t"), (owner_of(process), "u")):
        with pytest.raises(CredentialRefusedError, match="state"):
            await add(ConsentRequest(state, owner, 1, turn, "{}"))


async def test_a_turn_reads_no_credential_from_the_session_s_state(process: TurnProcess) -> None:
    with_keys(process)
    install_patch()
    config = key_config()
    given = {"authType": "serviceAccount", "serviceAccount": {"useDefaultCredential": True}}
    state: Any = {config.credential_key: given, f"temp:{config.credential_key}": given}
    handler = AuthHandler(config)
    turn_credentials.set(turn_of(process))
    try:
        assert handler.get_auth_response(state) is None
        assert not handler.has_auth_response(state)
        config.exchanged_auth_credential = AuthCredential(
            auth_type=AuthCredentialTypes.API_KEY, api_key="hush-key"
        )
        await handler.parse_and_store_auth_response(state)
        assert "hush-key" not in str(state)
    finally:
        turn_credentials.set(None)
    assert handler.has_auth_response(state), "outside of a turn, ADK does as it does"


@pytest.mark.filterwarnings("error")
def test_the_service_warns_of_no_experiment() -> None:
    """A server that starts would print ADK's warning for its operators."""
    SqlCredentialService(SqlSessionStore("sqlite://"))
