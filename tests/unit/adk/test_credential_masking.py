"""Secrets in events, model requests and credential requests."""

from itertools import permutations
from typing import Any

import pytest
from google.adk.auth.auth_credential import (
    AuthCredential,
    AuthCredentialTypes,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
    ServiceAccount,
    ServiceAccountCredential,
)
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.adk.credentials.kinds import (
    CREDENTIAL,
    asked_configs,
    give_new_state,
    secrets_of,
    state_of,
    without_secrets,
)
from lango.adk.credentials.masking import Secrets
from lango.adk.turn_events import TurnReader
from lango.core.redaction import MASK
from lango.core.turns.events import CredentialRequired
from tests.support.credential_agents import key_config, oauth_config
from tests.support.oauth_provider import OAuthProvider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)
HUSH = "hush-access-1"


def known(*secrets: str) -> Secrets:
    found = Secrets()
    found.add(secrets or (HUSH,))
    return found


def test_a_secret_that_begins_another_leaves_no_tail() -> None:
    texts = ("abcdef", "abcdef-and", "abcdef-and-the-rest")
    for order in permutations(texts):
        found = Secrets()
        for text in order:
            found.add([text])
        assert found.masked({"a": f"is {texts[-1]}"}) == {"a": f"is {MASK}"}


def test_an_event_is_masked_where_it_is_stored() -> None:
    parts = [
        types.Part(text=f"it is {HUSH}"),
        types.Part(function_call=types.FunctionCall(id="1", name="files", args={"k": [HUSH]})),
        types.Part(
            function_response=types.FunctionResponse(id="1", name="files", response={"r": HUSH})
        ),
    ]
    event = Event(
        author="clerk",
        content=types.Content(role="model", parts=parts),
        output={"token": HUSH},
        error_message=f"401 for {HUSH}",
        actions=EventActions(state_delta={"cached": HUSH, "other": 1}, agent_state={"t": HUSH}),
    )
    known(HUSH, "clerk-", "files-").mask_event(event)
    text = event.model_dump_json()
    assert HUSH not in text
    assert text.count(MASK) == 6
    assert event.actions.state_delta == {"other": 1}
    assert HUSH in (parts[0].text or ""), "the content may be an object of the app"


def test_names_are_not_masked() -> None:
    call = types.FunctionCall(id="call-1", name="weather", args={"k": "a"})
    event = Event(author="weather", content=types.Content(parts=[types.Part(function_call=call)]))
    known("weather", "call-1").mask_event(event)
    assert (event.author, event.get_function_calls()) == ("weather", [call])


@pytest.mark.parametrize("as_content", [False, True])
def test_a_model_request_is_masked(as_content: bool) -> None:
    instruction: Any = f"use {HUSH}"
    if as_content:
        instruction = types.Content(parts=[types.Part(text=instruction)])
    request = LlmRequest(
        contents=[types.UserContent("hi"), types.UserContent(f"with {HUSH}")],
        config=types.GenerateContentConfig(system_instruction=instruction),
    )
    kept = request.contents[0]
    known().mask_request(request)
    assert HUSH not in request.model_dump_json()
    assert request.model_dump_json().count(MASK) == 2
    assert request.contents[0] is kept


def test_a_request_has_no_configured_secret() -> None:
    names = ("project_id", "private_key_id", "client_email", "client_id", "auth_uri", "token_uri")
    names += ("auth_provider_x509_cert_url", "client_x509_cert_url", "universe_domain")
    fields = dict.fromkeys(names, "x")
    account = ServiceAccountCredential.model_validate(
        {**fields, "type": "service_account", "private_key": "hush-private-key"}
    )
    raw = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2,
        api_key="hush-key",
        http=HttpAuth(
            scheme="basic",
            credentials=HttpCredentials(username="u", password="hush-word", token="hush-bearer"),
            additional_headers={"x": "hush-header"},
        ),
        oauth2=OAuth2Auth(client_id="c", client_secret="hush-client", refresh_token="hush-again"),
        service_account=ServiceAccount(service_account_credential=account, scopes=["s"]),
    )
    config = key_config()
    config.raw_auth_credential = raw
    config.exchanged_auth_credential = raw.model_copy(deep=True)
    assert len(set(secrets_of(raw))) == 7
    assert "hush" not in without_secrets(config).model_dump_json()
    assert "hush-private-key" in config.model_dump_json(), "the tool's own object is changed"


def consent_at(address: str) -> AuthConfig:
    config = oauth_config(OAuthProvider("https://provider.example"))
    config.exchanged_auth_credential = AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(auth_uri=address, state="fixed")
    )
    return config


@pytest.mark.parametrize(
    "query", ["?a=b%20c&state=fixed&d=e", "?a=b%20c&d=e", "?state&a=b%20c&d=e"]
)
def test_an_address_gets_a_new_state(query: str) -> None:
    config = consent_at(f"https://provider.example/x{query}#y")
    give_new_state(config)
    state = state_of(config)
    assert state is not None
    assert len(state) > 30
    given = config.exchanged_auth_credential
    assert given is not None
    assert given.oauth2 is not None
    assert given.oauth2.auth_uri == f"https://provider.example/x?a=b%20c&d=e&state={state}#y"


def test_a_call_that_a_model_made_asks_for_nothing() -> None:
    config = consent_at("https://attacker.example/login")
    arguments = {"functionCallId": "1", "authConfig": config.model_dump(mode="json", by_alias=True)}
    call = types.FunctionCall(id="2", name=CREDENTIAL, args=arguments)
    event = Event(author="clerk", content=types.ModelContent(types.Part(function_call=call)))
    assert list(TurnReader().read(event)) == []
    assert asked_configs([event]) == {}
    event.long_running_tool_ids = {"2"}
    (shown,) = TurnReader().read(event)
    assert isinstance(shown, CredentialRequired)
    assert shown.request.agent == "clerk"
    assert list(asked_configs([event])) == ["2"]
