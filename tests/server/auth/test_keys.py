"""API keys at the door: who gets in, and as whom."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request

from lango.core.keys import KeyLimits, KeyText
from lango.errors import UnauthorizedError
from lango.server.auth import identity
from lango.server.auth.identity import Credentials, Keys
from lango.server.auth.limits import MAX_ATTEMPTS, MAX_CONCURRENT_LOOKUPS
from lango.store.keys import ApiKey, KeyStore, MadeKey
from lango.store.sessions.store import SqlSessionStore
from tests.server.auth_app import Clock, refused, request_to

UNKNOWN = "unknown here, has expired or was revoked"


async def who(app: FastAPI, made: MadeKey, user: str | None = None) -> dict[str, Any]:
    headers = {} if user is None else {"lango-user": user}
    answer = await request_to(app, bearer=made.text, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_key_says_who_calls(app: FastAPI, keys: KeyStore, tenant: str) -> None:
    made = await keys.create(tenant, user="ann")
    assert await who(app, made) == {
        "tenant": tenant,
        "user": "ann",
        "scopes": ["chat"],
        "key_id": made.key.id,
    }


async def test_no_credential(app: FastAPI) -> None:
    refused(await request_to(app), 401, "needs an API key or a token")


@pytest.mark.parametrize(
    "sent",
    [
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer  ")],
        [("authorization", "Basic bGFuZ286")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ],
    ids=["empty", "no-key", "blank", "basic", "two"],
)
async def test_a_header_that_is_none(app: FastAPI, sent: list[tuple[str, str]]) -> None:
    refused(await request_to(app, headers=sent), 401, "is not as it should be")


async def test_a_wrong_key(app: FastAPI, keys: KeyStore, tenant: str) -> None:
    made = await keys.create(tenant, user="ann")
    nearly = KeyText(made.key.id, KeyText.new().secret).text
    for wrong in ("x", "lango_x", KeyText.new().text, nearly, made.text + "x", made.text[:-1]):
        refused(await request_to(app, bearer=wrong), 401, UNKNOWN)
    await keys.revoke(tenant, made.key.id)
    refused(await request_to(app, bearer=made.text), 401, UNKNOWN)


async def test_the_scheme_may_be_written_in_any_case(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="ann")
    answer = await request_to(app, headers={"authorization": f"bEARER {made.text}"})
    assert answer.status_code == 200


async def test_a_key_in_a_url_is_refused_though_it_is_good(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="ann")
    for path in (
        f"/who?key={made.text}",
        f"/who?q=my+key+is+{made.text}",
        "/who?access_token=x",
        "/who?API_KEY=x",
    ):
        refused(await request_to(app, path), 401, "does not belong in a URL")
        refused(await request_to(app, path, bearer=made.text), 401, "does not belong in a URL")


async def test_a_revoked_key_is_forgotten_soon(
    app: FastAPI, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann")
    await who(app, made)
    await keys.revoke(tenant, made.key.id)
    clock.time += identity.TRUST / 2
    await who(app, made)  # not looked up for each request
    clock.time += identity.TRUST
    refused(await request_to(app, bearer=made.text), 401, UNKNOWN)
    clock.time -= identity.TRUST
    refused(await request_to(app, bearer=made.text), 401, UNKNOWN)


async def test_keys_that_were_looked_up_do_not_pile_up(
    app: FastAPI, keys: KeyStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_MAX_KNOWN", 1)
    first, second = [await keys.create(tenant, user=user) for user in ("ann", "bob")]
    for made in (first, second, first):
        assert (await who(app, made))["user"] == made.key.user
    await keys.revoke(tenant, second.key.id)
    refused(await request_to(app, bearer=second.text), 401, UNKNOWN)


async def test_both_keys_work_while_one_replaces_the_other(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    old = await keys.create(tenant, user="ann")
    new = await keys.rotate(tenant, old.key.id)
    assert (await who(app, old))["user"] == (await who(app, new))["user"] == "ann"


@pytest.mark.parametrize("user", ["bob", "Ünal", "名前", "a b/../c", "x" * 256])
async def test_act_as(app: FastAPI, keys: KeyStore, tenant: str, user: str) -> None:
    made = await keys.create(tenant, scopes=["act_as"])
    result = await who(app, made, user)
    assert (result["tenant"], result["user"]) == (tenant, user)


async def test_act_as_without_a_user(app: FastAPI, keys: KeyStore, tenant: str) -> None:
    made = await keys.create(tenant, scopes=["act_as"])
    assert (await who(app, made))["user"] is None
    refused(
        await request_to(app, "/turn", method="POST", bearer=made.text),
        403,
        "This key acts for no user",
    )


async def test_a_bound_key_that_may_act_as_others(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="ann", scopes=["act_as"])
    assert (await who(app, made))["user"] == "ann"
    assert (await who(app, made, "bob"))["user"] == "bob"


@pytest.mark.parametrize("scopes", [["chat"], ["chat", "admin"]])
@pytest.mark.parametrize("user", ["ann", "bob", ""])
async def test_the_header_without_the_scope(
    app: FastAPI, keys: KeyStore, tenant: str, scopes: list[str], user: str
) -> None:
    made = await keys.create(tenant, user="ann", scopes=scopes)
    answer = await request_to(app, bearer=made.text, headers={"lango-user": user})
    refused(answer, 403, "needs a credential with the scope act_as")


@pytest.mark.parametrize(
    "sent",
    [
        [("lango-user", "")],
        [("lango-user", "x" * 257)],
        [("lango-user", "a\x7fb")],
        [("lango-user", "a\x85b")],
        [("lango-user", "ann"), ("lango-user", "bob")],
    ],
    ids=["empty", "long", "control", "control-of-two-bytes", "two"],
)
async def test_a_user_that_cannot_be_one(
    app: FastAPI, keys: KeyStore, tenant: str, sent: list[tuple[str, str]]
) -> None:
    made = await keys.create(tenant, scopes=["act_as"])
    refused(await request_to(app, bearer=made.text, headers=sent), 422, "user")


async def test_a_key_without_chat_holds_no_conversation(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    made = await keys.create(tenant, user="ann", scopes=["admin"])
    assert (await who(app, made))["scopes"] == ["admin"]
    answer = await request_to(app, "/turn", method="POST", bearer=made.text)
    refused(answer, 403, "the scope chat")


async def test_a_secret_is_good_for_its_own_key_alone(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    """Also while the key it belongs to is remembered."""
    made = await keys.create(tenant, user="ann")
    secret = KeyText.read(made.text)
    assert secret is not None
    await who(app, made)
    refused(await request_to(app, bearer=KeyText("0" * 16, secret.secret).text), 401, UNKNOWN)


ELSEWHERE = ("192.0.2.1", 1_234)
WAIT = "Too many API keys that are not known here came from this address"


async def test_an_address_that_guesses_has_to_wait(
    app: FastAPI, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made, late = await keys.create(tenant, user="ann"), await keys.create(tenant, user="bob")
    await who(app, made)
    for _ in range(MAX_ATTEMPTS):
        refused(await request_to(app, bearer=KeyText.new().text), 401, UNKNOWN)
    answer = await request_to(app, bearer=KeyText.new().text)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["title"].startswith(WAIT)
    clock.time += 10 * identity.TRUST  # what was good before is looked up again
    for _ in range(MAX_ATTEMPTS):
        await request_to(app, bearer=KeyText.new().text)
    assert (await request_to(app, bearer=late.text)).status_code == 429
    assert await who(app, made)
    assert (await request_to(app, bearer=late.text, client=ELSEWHERE)).status_code == 200
    clock.time += 1
    assert (await request_to(app, bearer=late.text)).status_code == 200


async def test_many_good_keys_of_one_address_do_not_wait(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    for number in range(MAX_ATTEMPTS + 5):
        await who(app, await keys.create(tenant, user=f"user-{number}"))


async def test_good_keys_that_come_together_are_not_taken_for_guesses(
    app: FastAPI, keys: KeyStore, tenant: str
) -> None:
    """As after a restart, behind one address."""
    made = [await keys.create(tenant, user=f"user-{number}") for number in range(20)]
    each_often = [key.text for key in made for _ in range(MAX_ATTEMPTS // 5)]
    answers = await asyncio.gather(*(request_to(app, bearer=text) for text in each_often))
    assert {answer.status_code for answer in answers} == {200}


async def test_guesses_that_come_together_get_no_further_than_others(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[KeyText] = []
    find = KeyStore.find

    async def count(self: KeyStore, given: KeyText) -> ApiKey | None:
        lookups.append(given)
        return await find(self, given)

    monkeypatch.setattr(KeyStore, "find", count)
    guesses = [request_to(app, bearer=KeyText.new().text) for _ in range(4 * MAX_ATTEMPTS)]
    answers = await asyncio.gather(*guesses)
    assert {answer.status_code for answer in answers} == {401, 429}
    assert len(lookups) < MAX_ATTEMPTS + 2 * MAX_CONCURRENT_LOOKUPS


async def test_a_good_key_goes_on_while_it_is_looked_up_again(
    app: FastAPI, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann")
    await who(app, made)
    clock.time += 10 * identity.TRUST
    for _ in range(MAX_ATTEMPTS):
        await request_to(app, bearer=KeyText.new().text)
    answers = await asyncio.gather(*(request_to(app, bearer=made.text) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_key_that_is_unknown_is_looked_up_once_in_a_while(
    app: FastAPI, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[KeyText] = []
    find = KeyStore.find

    async def count(self: KeyStore, given: KeyText) -> ApiKey | None:
        lookups.append(given)
        return await find(self, given)

    monkeypatch.setattr(KeyStore, "find", count)
    wrong = KeyText.new()
    for _ in range(2 * MAX_ATTEMPTS):
        refused(await request_to(app, bearer=wrong.text), 401, UNKNOWN)
    assert lookups == [wrong]
    clock.time += identity.TRUST + 1
    refused(await request_to(app, bearer=wrong.text), 401, UNKNOWN)
    assert lookups == [wrong, wrong]


async def test_a_key_is_checked_again_without_counting_as_a_request(
    store: SqlSessionStore, keys: KeyStore, tenant: str, clock: Clock
) -> None:
    made = await keys.create(tenant, user="ann", limits=KeyLimits(requests=1))
    known = Credentials(Keys(store.database, clock=clock))
    headers = [(b"authorization", f"Bearer {made.text}".encode())]
    request = Request({"type": "http", "path": "/", "query_string": b"", "headers": headers})
    for _ in range(3):
        await known.recheck(request)
    assert (await known.caller(request)).user == "ann"
    await keys.revoke(tenant, made.key.id)
    await known.recheck(request)  # it is still remembered
    clock.time += identity.TRUST + 1
    with pytest.raises(UnauthorizedError):
        await known.recheck(request)
