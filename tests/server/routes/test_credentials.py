"""Credentials over HTTP: the callback, the answer route, the list, the delete."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lango.core.keys import KeyLimits
from lango.server.auth.identity import Credentials, Keys
from lango.store.keys import KeyStore
from tests.server.served_apps import ServedApp
from tests.support.credential_agents import asking, clerk, key_config, with_keys, worker
from tests.support.credential_turns import GO, all_rows, consent
from tests.support.oauth_provider import OAuthProvider, oauth_provider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)
JSON = {"content-type": "application/json"}


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with oauth_provider() as running:
        yield running


async def settled(served: ServedApp, turn: str, name: str = "ann") -> dict[str, Any]:
    """A turn that has ended or waits, as HTTP shows it."""
    async with asyncio.timeout(240):
        await served.turns(name).wait(turn)
    async with served.client(name) as client:
        return (await client.get(f"/v1/turns/{turn}")).json()


async def waiting(served: ServedApp, name: str = "ann") -> dict[str, Any]:
    turn = await settled(served, await served.turn(await served.session(name), GO, name), name)
    assert turn["state"] == "input_required", turn
    return turn


async def newest(served: ServedApp, turn: dict[str, Any]) -> str:
    async with served.client(turn["user"]) as client:
        page = await client.get(f"/v1/sessions/{turn['session']}/turns")
    return page.json()["turns"][0]["id"]


async def test_the_browser_comes_back(served: ServedApp, provider: OAuthProvider) -> None:
    with_keys(served.process)
    async with worker(served.process, clerk(asking(provider))):
        turn = await waiting(served)
        (request,) = turn["credentials"]
        assert request["credential"] == turn["waits_for"][0]
        assert (request["kind"], request["name"]) == ("oauth2", "files")
        state, url = await consent(request["auth_uri"])
        path = httpx.URL(url).raw_path.decode()
        async with served.client(None) as browser:
            assert (await browser.get(path.replace(state, "made-up"))).status_code == 404
            denied = await browser.get(
                "/v1/credentials/callback", params={"state": state, "error": "access_denied"}
            )
            assert denied.status_code == 422
            wrong = httpx.URL(path).copy_set_param("code", "<b>made-up</b>")
            assert (await browser.get(wrong)).status_code == 422
        async with served.client("bob") as other:
            assert (await other.get(path)).status_code == 404
        async with served.client("other-ann") as other:
            assert (await other.get(path)).status_code == 404
        async with served.client(None) as browser:
            page = await browser.get(path)
            assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
            assert "Connected" in page.text
            assert (await browser.get(path)).status_code == 404
        answer = await settled(served, await newest(served, turn))
        assert answer["state"] == "completed"
        assert "plans.txt" in answer["text"]
    assert provider.exchanges == 1
    async with served.client() as ann, served.client("bob") as bob:
        (credential,) = (await ann.get("/v1/credentials")).json()["credentials"]
        assert credential["kind"] == "oauth2"
        assert (await bob.get("/v1/credentials")).json() == {"credentials": []}
        where = f"/v1/credentials/{credential['id']}"
        assert (await bob.delete(where)).status_code == 404
        assert (await ann.delete(where)).status_code == 204
        assert (await ann.delete(where)).status_code == 404
        assert (await ann.get("/v1/credentials")).json() == {"credentials": []}


async def test_the_callback_has_the_limits_of_the_turn_s_key(
    served: ServedApp, provider: OAuthProvider
) -> None:
    with_keys(served.process)
    database, of_tenant = served.process.store.database, served.turns()
    served.app.state.identity = Credentials(Keys(database))
    made = await KeyStore(database).create(served.tenant, user="ann", limits=KeyLimits(turns=1))
    async with served.client(made.text) as ann, served.client(None) as browser:
        new_session = await ann.post("/v1/sessions", json={"app": served.agent})
        turns = f"/v1/sessions/{new_session.json()['id']}/turns"
        async with worker(served.process, clerk(asking(provider))):
            turn = (await ann.post(turns, json={"message": GO})).json()["id"]
            async with asyncio.timeout(240):
                await of_tenant.wait(turn)
            (request,) = (await ann.get(f"/v1/turns/{turn}")).json()["credentials"]
        _, url = await consent(request["auth_uri"])
        path = httpx.URL(url).raw_path.decode()
        other = await ann.post(turns, json={"message": GO})  # no worker runs it: it stays open
        assert other.status_code == 202, other.text
        refused = await browser.get(path)
        assert (refused.status_code, provider.exchanges) == (429, 0)
        assert "Limit of 1 open turns" in refused.text
        await ann.post(f"/v1/turns/{other.json()['id']}/cancel")
        assert (await browser.get(path)).status_code == 200
        newest_turn = (await ann.get(turns)).json()["turns"][0]["id"]
    assert (await of_tenant.get(newest_turn)).key_id == made.key.id
    assert provider.exchanges == 1


async def test_an_application_answers_with_a_key(
    served: ServedApp, provider: OAuthProvider
) -> None:
    with_keys(served.process)
    async with worker(served.process, clerk(asking(provider, key_config()))):
        turn = await waiting(served)
        (request,) = turn["credentials"]
        assert (request["kind"], request["auth_uri"]) == ("api_key", None)
        path = f"/v1/turns/{turn['id']}/approvals"
        body = {"call": request["credential"], "approved": True}
        secret = "hush-api-key-of-ann"
        async with served.client() as ann, served.client("bob") as bob:
            service = {"useDefaultCredential": True}
            account = {"authType": "serviceAccount", "apiKey": secret, "serviceAccount": service}
            half = {"api_key": f"{secret}\ud800"}  # of a surrogate pair
            for payload in (None, {"token": secret}, {"api_key": ""}, account, half):
                text = json.dumps(body | {"payload": payload})
                refused = await ann.post(path, content=text, headers=JSON)
                assert refused.status_code == 422, refused.text
                assert refused.json()["type"] == "urn:lango:error:credential-refused"
                assert secret not in refused.text
            given = body | {"payload": {"api_key": secret}}
            assert (await bob.post(path, json=given)).status_code == 404
            accepted = await ann.post(path, json=given)
            assert accepted.status_code == 202, accepted.text
        answer = await settled(served, accepted.json()["id"])
        assert answer["state"] == "completed"
        assert "**********" in answer["text"]
    assert secret not in await all_rows(served.process)


async def test_a_server_without_keys_says_so(served: ServedApp, provider: OAuthProvider) -> None:
    with_keys(served.process)
    async with worker(served.process, clerk(asking(provider))):
        turn = await waiting(served)
    served.process.store.credentials = type(served.process.store.credentials)(
        served.process.store.database
    )
    body = {"call": turn["waits_for"][0], "approved": True, "payload": {"code": "x"}}
    async with served.client() as ann:
        refused = await ann.post(f"/v1/turns/{turn['id']}/approvals", json=body)
        callback = await ann.get("/v1/credentials/callback", params={"state": "s", "code": "c"})
    assert (refused.status_code, callback.status_code) == (409, 409)
    assert "credentials.keys" in refused.json()["title"]
