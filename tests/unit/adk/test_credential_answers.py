"""Which answers to a credential request can be used."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.openapi.models import HTTPBearer
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import CustomAuthScheme
from google.adk.auth.auth_tool import AuthConfig

from lango.adk.credentials.answers import exchanged, read_credential, reference_to
from lango.adk.credentials.kinds import kind_of, secrets_of
from lango.errors import CredentialRefusedError
from tests.support.credential_agents import basic_config, key_config, oauth_config
from tests.support.oauth_provider import OAuthProvider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)


def asked() -> AuthConfig:
    """A request for a consent, with the state `right`."""
    config = oauth_config(OAuthProvider("https://provider.example"))
    given = OAuth2Auth(client_id="c", state="right", auth_uri="https://provider.example/a")
    config.exchanged_auth_credential = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=given
    )
    return config


def test_the_kinds() -> None:
    assert [kind_of(each) for each in (asked(), key_config(), basic_config())] == [
        "oauth2",
        "api_key",
        "basic",
    ]


@pytest.mark.parametrize(
    "payload",
    [
        {"response_url": "https://x.example/?code=abc&state=right"},
        "https://x.example/?code=abc&state=right",
        {"code": "abc"},
        {"code": "abc", "state": "right"},
        {"access_token": "hush"},
        {"auth_type": "oauth2", "oauth2": {"auth_code": "abc"}},
        {"authType": "oauth2", "oauth2": {"authResponseUri": "https://x/?code=a&state=right"}},
    ],
)
def test_a_consent(payload: Any) -> None:
    assert read_credential(asked(), payload).oauth2 is not None


@pytest.mark.parametrize(
    "payload",
    [
        None,
        7,
        [],
        {},
        "https://x.example/?error=access_denied&state=right",
        "https://x.example/?code=abc",
        "https://x.example/?code=abc&state=wrong",
        "http://[",
        {"code": "abc", "state": "wrong"},
        {"code": ["abc"]},
        {"api_key": "k"},
        {"auth_type": "oauth2"},
        {"auth_type": "oauth2", "resource_ref": "lango:stored"},
    ],
)
def test_no_consent(payload: Any) -> None:
    with pytest.raises(CredentialRefusedError):
        read_credential(asked(), payload)


def test_an_adk_config_as_its_front_ends_send_it() -> None:
    config = asked()
    answer = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    answer["exchangedAuthCredential"]["oauth2"]["authResponseUri"] = "https://x/?code=a&state=right"
    assert read_credential(config, answer).oauth2 is not None
    answer["exchangedAuthCredential"]["oauth2"]["authResponseUri"] = "https://x/?code=a&state=no"
    with pytest.raises(CredentialRefusedError, match="another request"):
        read_credential(config, answer)


def test_keys_and_passwords() -> None:
    assert read_credential(key_config(), {"api_key": "hush"}).api_key == "hush"
    assert read_credential(key_config(), "hush").api_key == "hush"
    both = {"username": "ann", "password": "hush"}
    assert list(secrets_of(read_credential(basic_config(), both))) == ["hush"]
    for config, payload in ((key_config(), {"api_key": ""}), (basic_config(), {"username": "ann"})):
        with pytest.raises(CredentialRefusedError, match="This call takes"):
            read_credential(config, payload)


def test_the_stored_answer_has_no_secret() -> None:
    assert reference_to(asked()) == {
        "authType": "oauth2",
        "resourceRef": "lango:stored",
        "oauth2": {"state": "right"},
    }
    assert reference_to(key_config()) == {"authType": "apiKey", "resourceRef": "lango:stored"}


SERVICE_ACCOUNT = {"use_default_credential": True, "scopes": ["all"]}
BEARER = {"scheme": "bearer", "credentials": {"token": "hush", "password": "p"}}


@pytest.mark.parametrize(
    "payload",
    [
        {"auth_type": "serviceAccount", "service_account": SERVICE_ACCOUNT, "api_key": "hush"},
        {"auth_type": "oauth2", "api_key": "hush", "oauth2": {"access_token": "t"}},
        {"auth_type": "http", "api_key": "hush", "http": BEARER},
    ],
)
def test_a_credential_of_another_type_is_refused(payload: Any) -> None:
    for config in (key_config(), basic_config(), asked()):
        if payload["auth_type"] == "oauth2" and kind_of(config) == "oauth2":
            continue
        with pytest.raises(CredentialRefusedError, match="This call takes"):
            read_credential(config, payload)


def test_only_the_fields_of_the_kind_are_kept() -> None:
    more = {"service_account": SERVICE_ACCOUNT, "resource_ref": "projects/p", "made_up": "x"}
    key = read_credential(key_config(), {"auth_type": "apiKey", "api_key": "hush", **more})
    assert key.model_dump(exclude_none=True) == {"auth_type": "apiKey", "api_key": "hush"}
    http = {"scheme": "Evil", "additional_headers": {"Host": "x"}, "made_up": "x"}
    credentials = {"username": "ann", "password": "hush", "token": "t", "made_up": "x"}
    payload = {"auth_type": "http", "http": {**http, "credentials": credentials}, **more}
    given = read_credential(basic_config(), payload)
    both = {"username": "ann", "password": "hush"}
    assert given.model_dump(exclude_none=True) == {
        "auth_type": "http",
        "http": {"scheme": "basic", "credentials": both},
    }
    bearer = AuthConfig(auth_scheme=HTTPBearer())
    given = read_credential(bearer, {"auth_type": "http", "http": BEARER, **more})
    assert given.model_dump(exclude_none=True) == {
        "auth_type": "http",
        "http": {"scheme": "bearer", "credentials": {"token": "hush"}},
    }


def test_a_scheme_of_another_kind_takes_no_answer() -> None:
    config = AuthConfig(auth_scheme=CustomAuthScheme.model_validate({"type": "made-up"}))
    assert kind_of(config) == "other"
    for payload in (
        {"auth_type": "serviceAccount", "service_account": SERVICE_ACCOUNT},
        {"auth_type": "apiKey", "api_key": "hush"},
        "hush",
    ):
        with pytest.raises(CredentialRefusedError, match="no credential of a user"):
            read_credential(config, payload)


async def test_client_and_addresses_of_a_consent_are_the_request_s() -> None:
    config = asked()
    theirs = {"redirect_uri": "https://evil.example", "client_id": "evil", "client_secret": "evil"}
    payload = {"auth_type": "oauth2", "oauth2": {"access_token": "hush", **theirs, "made_up": "x"}}
    stored = await exchanged(config, read_credential(config, payload))
    assert "evil" not in stored.model_dump_json()
    assert "made_up" not in stored.model_dump_json()
    assert stored.exchanged_auth_credential is not None
    assert stored.exchanged_auth_credential.oauth2 is not None
    assert stored.exchanged_auth_credential.oauth2.access_token == "hush"


@pytest.mark.parametrize("asking", [asked, key_config, basic_config])
def test_text_that_is_not_utf_8_is_refused(asking: Callable[[], AuthConfig]) -> None:
    broken = "hush-\ud800-key"
    credentials = {"username": "ann", "password": broken}
    for payload in (
        broken,
        {"api_key": broken},
        {"code": broken},
        credentials,
        {"auth_type": "apiKey", "api_key": broken},
        {"auth_type": "http", "http": {"scheme": "basic", "credentials": credentials}},
    ):
        with pytest.raises(CredentialRefusedError, match="UTF-8") as refused:
            read_credential(asking(), payload)
        assert "hush" not in str(refused.value)
