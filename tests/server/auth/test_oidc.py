"""Tokens at the door: good ones, and every way to be none."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI
from joserfc import jws

from lango.config.server import OidcSettings
from lango.core.turns.states import NewTurn
from lango.server.auth import jwks as identity_jwks
from lango.server.auth.identity import Credentials, Keys
from lango.server.auth.jwks import KeySource
from lango.server.auth.oidc import Tokens
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.submit import SqlTurnStore
from tests.server.auth.issuers import (
    AUDIENCE,
    DISCOVERY,
    JWKS,
    Issuer,
    issuing,
    new_key,
    shared_secret,
    signed,
)
from tests.server.auth_app import Clock, auth_app, refused, request_to
from tests.store.rows import created, key

NOT_READABLE = "neither an API key nor a token that can be read"
NOT_THEIRS = "a key that its issuer does not have"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing(new_key("ES256")) as opened:
        yield opened


@pytest_asyncio.fixture
async def store(sqlite_url: str) -> AsyncIterator[SqlSessionStore]:
    async with SqlSessionStore(sqlite_url) as opened:
        yield opened


class AuthApps:
    """Doors that take an issuer's tokens, each with other settings."""

    def __init__(self, store: SqlSessionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, issuer: Issuer, **settings: Any) -> FastAPI:
        given = {"issuer": issuer.url, "audience": AUDIENCE, "tenant": "acme", **settings}
        oidc = OidcSettings.model_validate(given)
        source = KeySource(oidc.issuer, oidc.jwks_url, clock=self._clock)
        return auth_app(Credentials(Keys(self._store.database), Tokens(oidc, source)))


@pytest.fixture
def auth_apps(store: SqlSessionStore, clock: Clock) -> AuthApps:
    return AuthApps(store, clock)


async def who(app: FastAPI, token: str, **headers: str) -> dict[str, Any]:
    answer = await request_to(app, bearer=token, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA", "Ed25519"])
async def test_a_good_token(auth_apps: AuthApps, algorithm: str) -> None:
    async with issuing(new_key(algorithm)) as issuer:
        result = await who(auth_apps(issuer), issuer.token(algorithm))
        assert result.pop("key_id").startswith("oidc_")
        assert result == {"tenant": "acme", "user": "ann", "scopes": ["chat"]}
        assert issuer.asked == [DISCOVERY, JWKS]


async def test_keys_where_the_settings_say(auth_apps: AuthApps, issuer: Issuer) -> None:
    app = auth_apps(issuer, jwks_url=issuer.url + "/elsewhere")
    await who(app, issuer.token())
    await who(app, issuer.token())
    assert issuer.asked == ["/elsewhere"]


async def test_keys_and_tokens_side_by_side(
    auth_apps: AuthApps, issuer: Issuer, store: SqlSessionStore, tenant: str
) -> None:
    app, made = auth_apps(issuer), await KeyStore(store.database).create(tenant, user="bob")
    assert (await who(app, made.text))["tenant"] == tenant
    assert (await who(app, issuer.token()))["tenant"] == "acme"


async def test_tenant_user_and_scopes_from_claims(auth_apps: AuthApps, issuer: Issuer) -> None:
    app = auth_apps(issuer, tenant="", tenant_claim="org", user_claim="email", scopes_claim="scope")
    token = issuer.token(org="globex", email="a@b.c", scope="openid chat admin")
    result = await who(app, token)
    assert result.pop("key_id") != (await who(auth_apps(issuer), issuer.token()))["key_id"]
    assert result == {"tenant": "globex", "user": "a@b.c", "scopes": ["admin", "chat"]}
    listed = issuer.token(org="globex", email="a@b.c", scope=["act_as", "x"])
    assert (await who(app, listed, **{"lango-user": "zoe"}))["user"] == "zoe"
    none = issuer.token(org="globex", email="a@b.c")
    assert (await who(app, none))["scopes"] == []
    refused(await request_to(app, "/turn", method="POST", bearer=none), 403, "the scope chat")
    good: dict[str, Any] = {"org": "globex", "email": "a@b.c"}
    wrong: Any
    for claim, wrong in (
        ("org", None),
        ("org", 7),
        ("org", ""),
        ("email", None),
        ("email", "\x00"),
    ):
        refused(await request_to(app, bearer=issuer.token(**{**good, claim: wrong})), 401, claim)


async def test_a_token_may_not_act_as_others_unless_it_says_so(
    auth_apps: AuthApps, issuer: Issuer
) -> None:
    answer = await request_to(
        auth_apps(issuer), bearer=issuer.token(scope="act_as"), headers={"lango-user": "zoe"}
    )
    refused(answer, 403, "needs a credential with the scope act_as")


PAST, FUTURE = int(time.time()) - 36_000, int(time.time()) + 36_000
NOT_FOR_US: list[tuple[dict[str, Any], str]] = [
    ({"exp": PAST}, "has expired"),
    ({"exp": None}, "no claim exp"),
    ({"exp": "tomorrow"}, "exp does not fit"),
    ({"exp": float("nan")}, "exp does not fit"),
    ({"nbf": FUTURE}, "nbf does not fit"),
    ({"iat": FUTURE}, "iat does not fit"),
    ({"aud": "another"}, "aud does not fit"),
    ({"aud": ["another", "third"]}, "aud does not fit"),
    ({"aud": None}, "no claim aud"),
    ({"iss": "https://evil.example"}, "iss does not fit"),
    ({"iss": None}, "no claim iss"),
    ({"sub": None}, "no claim sub"),
    ({"sub": 7}, "sub"),
]


@pytest.mark.parametrize("number", range(len(NOT_FOR_US)))
async def test_a_token_that_is_not_for_us(auth_apps: AuthApps, issuer: Issuer, number: int) -> None:
    changes, words = NOT_FOR_US[number]
    refused(await request_to(auth_apps(issuer), bearer=issuer.token(**changes)), 401, words)


async def test_clocks_may_differ_a_little(auth_apps: AuthApps, issuer: Issuer) -> None:
    now = int(time.time())
    app = auth_apps(issuer, leeway=600)
    await who(app, issuer.token(exp=now - 300, nbf=now + 300, iat=now + 300, aud=["x", AUDIENCE]))
    refused(
        await request_to(auth_apps(issuer, leeway=0), bearer=issuer.token(exp=now - 300)),
        401,
        "expired",
    )


async def test_unsigned_and_wrongly_signed(auth_apps: AuthApps, issuer: Issuer) -> None:
    app, claims, kid = auth_apps(issuer), issuer.claims(), issuer.key.kid
    plain = signed({"alg": "none", "kid": kid}, claims, None)
    refused(await request_to(app, bearer=plain), 401, "must be signed by one of RS256, ES256")
    for algorithm in ("HS256", "HS512"):
        secret = shared_secret(issuer.key)
        forged = signed({"alg": algorithm, "kid": kid}, claims, secret)
        refused(await request_to(app, bearer=forged), 401, "must be signed by one of RS256, ES256")
    assert issuer.asked == []  # the issuer is not asked for the key of such a token
    other = signed({"alg": "ES256", "kid": kid}, claims, new_key("ES256"))
    refused(await request_to(app, bearer=other), 401, "signature of the token is wrong")
    head, body, signature = issuer.token().split(".")
    changed = base64.urlsafe_b64encode(b'{"sub": "root"}').decode().rstrip("=")
    for token in (f"{head}.{changed}.{signature}", f"{head}.{body}.", f"{head}.{body}.AAAA"):
        assert (await request_to(app, bearer=token)).status_code == 401


async def test_an_embedded_key_proves_nothing(auth_apps: AuthApps, issuer: Issuer) -> None:
    own = new_key("ES256")
    header = {"alg": "ES256", "kid": own.kid, "jwk": own.as_dict(private=False)}
    forged = signed(header, issuer.claims(), own)
    refused(await request_to(auth_apps(issuer), bearer=forged), 401, NOT_THEIRS)


async def test_an_algorithm_of_another_kind_of_key(auth_apps: AuthApps, issuer: Issuer) -> None:
    rsa = new_key("RS256")
    forged = signed({"alg": "RS256", "kid": issuer.key.kid}, issuer.claims(), rsa)
    assert (await request_to(auth_apps(issuer), bearer=forged)).status_code == 401


async def test_a_shared_secret_among_the_keys_is_no_key(
    auth_apps: AuthApps, issuer: Issuer
) -> None:
    issuer.published = [
        {"kty": "oct", "k": "AAAA", "kid": "x"},
        {"kty": "of the future", "kid": "y"},
        {"kty": "EC", "kid": "broken"},
        "no key at all",
        *issuer.published,
    ]
    await who(auth_apps(issuer), issuer.token())


def _headed(header: str) -> str:
    """Something like a token, with that for its header."""
    return base64.urlsafe_b64encode(header.encode()).decode().rstrip("=") + ".e30.AAAA"


@pytest.mark.parametrize(
    "token",
    [
        *("x", "a.b.c", "..", "....", "%00", "é.é.é"),
        *map(_headed, ("[]", "1", "null", "{}", '{"alg": []}', "[" * 380, "[" * 9_000)),
        *map(_headed, ('{"alg": "ES256", "kid": 7}', '{"alg": "ES256", "kid": ["x"]}')),
        "x" * 20_000,
    ],
    ids=lambda token: f"{token[:12]}-{len(token)}",
)
async def test_what_is_no_token(auth_apps: AuthApps, issuer: Issuer, token: str) -> None:
    answer = await request_to(auth_apps(issuer), headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401, answer.text
    assert issuer.asked == []


@pytest.mark.parametrize("payload", ["[]", "1", "null", "[" * 5_000])
async def test_a_signed_token_without_claims(
    auth_apps: AuthApps, issuer: Issuer, payload: str
) -> None:
    header = {"alg": "ES256", "kid": issuer.key.kid}
    token = jws.serialize_compact(header, payload, issuer.key)
    refused(await request_to(auth_apps(issuer), bearer=token), 401, NOT_READABLE)


async def test_a_new_key_is_fetched_when_it_is_met(
    auth_apps: AuthApps, issuer: Issuer, clock: Clock
) -> None:
    app, old, new = auth_apps(issuer), issuer.key, new_key("ES256")
    await who(app, issuer.token())
    refused(await request_to(app, bearer=issuer.token(key=new)), 401, NOT_THEIRS)
    assert issuer.asked.count(JWKS) == 1  # it was fetched a moment ago
    clock.time += identity_jwks.UNKNOWN + 1
    issuer.publish(old, new)
    await who(app, issuer.token(key=new))
    await who(app, issuer.token(key=old))
    assert issuer.asked.count(JWKS) == 2
    for _ in range(5):
        stranger = issuer.token(key=new_key("ES256"))
        refused(await request_to(app, bearer=stranger), 401, NOT_THEIRS)
    assert issuer.asked.count(JWKS) == 2


async def test_a_withdrawn_key_is_forgotten(
    auth_apps: AuthApps, issuer: Issuer, clock: Clock
) -> None:
    app, new = auth_apps(issuer), new_key("ES256")
    await who(app, issuer.token())
    issuer.publish(new)
    clock.time += identity_jwks.FRESH + 1
    refused(await request_to(app, bearer=issuer.token()), 401, NOT_THEIRS)
    await who(app, issuer.token(key=new))
    assert issuer.asked.count(JWKS) == 2


async def test_many_at_once_fetch_once(auth_apps: AuthApps, issuer: Issuer, clock: Clock) -> None:
    app = auth_apps(issuer)
    result = await asyncio.gather(*(who(app, issuer.token(sub=f"u{n}")) for n in range(20)))
    assert {one["user"] for one in result} == {f"u{n}" for n in range(20)}
    assert issuer.asked.count(JWKS) == 1
    clock.time += identity_jwks.UNKNOWN + 1
    strangers = [issuer.token(key=new_key("ES256")) for _ in range(20)]
    answers = await asyncio.gather(*(request_to(app, bearer=token) for token in strangers))
    assert {answer.status_code for answer in answers} == {401}
    assert issuer.asked.count(JWKS) == 2


async def test_an_issuer_that_is_down_from_the_start(
    auth_apps: AuthApps, issuer: Issuer, clock: Clock
) -> None:
    app, token = auth_apps(issuer), issuer.token()
    issuer.status = 503
    for _ in range(3):
        answer = await request_to(app, bearer=token)
        refused(answer, 503, "issuer")
        assert 1 <= int(answer.headers["retry-after"]) <= identity_jwks.FAILED
    assert issuer.asked == [DISCOVERY]  # not again for each request
    issuer.status = 200
    clock.time += identity_jwks.FAILED + 1
    await who(app, token)


async def test_an_issuer_that_goes_down(auth_apps: AuthApps, issuer: Issuer, clock: Clock) -> None:
    app, new = auth_apps(issuer), new_key("ES256")
    token, later = issuer.token(), issuer.token(key=new)
    await who(app, token)
    await issuer.stop()
    clock.time += identity_jwks.FRESH + 1
    await who(app, token)  # by the keys that were known
    answer = await request_to(app, bearer=later)
    refused(answer, 503, "issuer")  # which may well be the issuer's
    assert 1 <= int(answer.headers["retry-after"]) <= identity_jwks.UNKNOWN


@pytest.mark.parametrize(
    ("discovery", "published"),
    [
        ({"issuer": "https://evil.example"}, None),
        ({"jwks_uri": "http://evil.example/keys"}, None),
        ({"jwks_uri": "file:///etc/passwd"}, None),
        ({"jwks_uri": None}, None),
        ({}, "no list"),
        ({}, ["x" * (2 << 20)]),
    ],
    ids=["issuer", "http", "file", "none", "no-list", "too-long"],
)
async def test_documents_that_cannot_be_used(
    auth_apps: AuthApps,
    issuer: Issuer,
    caplog: pytest.LogCaptureFixture,
    discovery: dict[str, Any],
    published: Any,
) -> None:
    issuer.discovery = discovery
    if published is not None:
        issuer.published = published
    refused(await request_to(auth_apps(issuer), bearer=issuer.token()), 503, "issuer")
    assert f"No keys from {issuer.url}: " in caplog.text


async def test_a_cancelled_request_does_not_cancel_the_fetch_of_keys(
    issuer: Issuer, clock: Clock
) -> None:
    source = KeySource(issuer.url, clock=clock)
    first = asyncio.create_task(source.key(issuer.key.kid, "ES256"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert (await source.key(issuer.key.kid, "ES256")).kid == issuer.key.kid


async def test_each_user_of_a_token_has_limits(auth_apps: AuthApps, issuer: Issuer) -> None:
    app = auth_apps(issuer, tenant="", tenant_claim="org", limits={"requests": 2})
    for user, org in (("ann", "acme"), ("bob", "acme"), ("ann", "globex")):
        for _ in range(2):
            await who(app, issuer.token(sub=user, org=org))
        answer = await request_to(app, bearer=issuer.token(sub=user, org=org))
        refused(answer, 429, "may make 2 requests a minute")


async def test_users_of_tokens_have_so_many_turns(
    auth_apps: AuthApps, issuer: Issuer, store: SqlSessionStore
) -> None:
    app = auth_apps(issuer, limits={"turns": 1, "cost": 0.5})
    key_id = (await who(app, issuer.token()))["key_id"]
    assert (await request_to(app, "/turn", method="POST", bearer=issuer.token())).status_code == 200
    await created(store, key("acme"))
    await SqlTurnStore(store.database).submit(key("acme"), NewTurn({"text": "1"}, key_id=key_id))
    answer = await request_to(app, "/turn", method="POST", bearer=issuer.token())
    refused(answer, 429, "Limit of 1 open turns")
    bob = issuer.token(sub="bob")
    assert (await request_to(app, "/turn", method="POST", bearer=bob)).status_code == 200
