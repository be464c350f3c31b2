"""The bounds of requests to a token endpoint."""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.adk.auth.auth_credential import AuthCredential

from lango.adk.credentials import token_requests
from lango.adk.credentials.answers import exchanged, read_credential
from lango.adk.credentials.token_requests import request_tokens
from lango.errors import CredentialRefusedError
from tests.support.credential_agents import oauth_config
from tests.support.oauth_provider import OAuthProvider

pytestmark = pytest.mark.filterwarnings(
    # ADK's AuthConfig calls its own deprecated method.
    "ignore:This method is deprecated. Use credential_key instead:DeprecationWarning"
)
TOKENS = json.dumps({"access_token": "hush", "token_type": "Bearer"}).encode()


@contextmanager
def endpoint(answer: Callable[[BaseHTTPRequestHandler], None]) -> Generator[str]:
    """A token endpoint that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer(self)

        do_GET = do_POST  # a client that follows a 302 may send one

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def begin(handler: BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()


async def ask(url: str) -> AuthCredential:
    config = oauth_config(OAuthProvider(url))
    credential = config.raw_auth_credential
    assert credential is not None
    await request_tokens(credential, config.auth_scheme, "fetch_token", code="hush-code")
    return credential


async def test_an_answer_within_the_bounds() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        handler.wfile.write(TOKENS + b" " * (token_requests.MAX_BYTES - len(TOKENS)))

    with endpoint(answer) as url:
        credential = await ask(url)
    assert credential.oauth2 is not None
    assert credential.oauth2.access_token == "hush"


async def test_an_answer_that_is_too_long() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        handler.wfile.write(TOKENS + b" " * token_requests.MAX_BYTES)

    with endpoint(answer) as url, pytest.raises(OSError, match="too long"):
        await ask(url)


async def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_requests, "MAX_SECONDS", 0.5)
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler)
        while not over.is_set():  # a byte at a time: no wait for one takes long
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:  # the client has closed the connection
                return
            time.sleep(0.01)

    with endpoint(answer) as url:
        try:
            with pytest.raises(OSError, match=r"^$|takes too long"):
                await ask(url)
        finally:
            over.set()


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_no_secret_is_sent_to_the_address_of_a_redirect(status: int) -> None:
    sent: list[str] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        sent.append(handler.path)
        begin(handler)
        handler.wfile.write(TOKENS)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler, status, Location=f"{other}/taken")

    with endpoint(elsewhere) as other, endpoint(answer) as url:
        config = oauth_config(OAuthProvider(url))
        given = read_credential(config, {"code": "hush-code"})
        with pytest.raises(CredentialRefusedError, match="gave no token"):
            await exchanged(config, given)
    assert sent == []


async def test_an_error_is_logged_without_the_provider_s_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin(handler, 400)
        error = {"error": "invalid_grant", "error_description": "hush-code is used\nforged line"}
        handler.wfile.write(json.dumps(error).encode())

    with endpoint(answer) as url:
        config = oauth_config(OAuthProvider(url))
        with pytest.raises(CredentialRefusedError) as refused:
            await exchanged(config, read_credential(config, {"code": "hush-code"}))
    assert "OAuthError" in caplog.text
    for text in (caplog.text, str(refused.value)):
        assert "hush-code" not in text
        assert "forged" not in text
