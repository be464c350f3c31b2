"""An OAuth 2 provider on loopback, with an API that takes its tokens."""

import base64
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import uuid4

CLIENT = "client-of-the-tests"


@dataclass
class Grant:
    """A consent that was given: what the exchange of its code must prove."""

    challenge: str
    redirect_uri: str


@dataclass
class OAuthProvider:
    """Its state; every secret it has ever issued is in `secrets`."""

    url: str = ""
    client_secret: str = field(default_factory=lambda: f"hush-client-{uuid4().hex}")
    lifetime: int = 3600  # seconds of a token
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])
    valid: set[str] = field(default_factory=set[str])  # access tokens
    refreshing: set[str] = field(default_factory=set[str])  # refresh tokens
    secrets: list[str] = field(default_factory=list[str])
    exchanges: int = 0
    refreshes: int = 0
    problems: list[str] = field(default_factory=list[str])

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes after the user has consented."""
        code = self._secret("code")
        self.grants[code] = Grant(query["code_challenge"], query["redirect_uri"])
        answer = urlencode({"code": code, "state": query["state"]})
        return f"{query['redirect_uri']}?{answer}"

    def _secret(self, kind: str) -> str:
        self.secrets.append(f"hush-{kind}-{uuid4().hex}")
        return self.secrets[-1]

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """The answer of the token endpoint; None if the grant is refused."""
        pair = f"{quote(CLIENT)}:{quote(self.client_secret)}".encode()
        if authorization != f"Basic {base64.b64encode(pair).decode()}":
            self.problems.append("wrong client")
            return None
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refreshing:
                self.problems.append("used refresh token")
                return None
            self.refreshing.remove(form["refresh_token"])
            self.refreshes += 1
            return self._issued()
        grant = self.grants.pop(form.get("code", ""), None)
        verifier = sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if grant is None or grant != Grant(challenge, form.get("redirect_uri", "")):
            self.problems.append("wrong code, verifier or redirect_uri")
            return None
        self.secrets.append(form["code_verifier"])
        self.exchanges += 1
        return self._issued()

    def _issued(self) -> dict[str, Any]:
        access, refresh = self._secret("access"), self._secret("refresh")
        self.valid.add(access)
        self.refreshing.add(refresh)
        return {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
        }

    def api(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """The protected resource, which echoes what it was sent."""
        if authorization.removeprefix("Bearer ") not in self.valid:
            return 401, {"error": "invalid_token"}
        return 200, {"file": "plans.txt", "echo": authorization}


class _Handler(BaseHTTPRequestHandler):
    provider: OAuthProvider

    def _send(self, status: int, body: Any = None, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/authorize":
            self._send(302, Location=self.provider.authorize(dict(parse_qsl(address.query))))
        else:
            self._send(*self.provider.api(self.headers.get("Authorization", "")))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        form = dict(parse_qsl(body))
        tokens = self.provider.token(form, self.headers.get("Authorization", ""))
        self._send(*((400, {"error": "invalid_grant"}) if tokens is None else (200, tokens)))

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@contextmanager
def oauth_provider() -> Generator[OAuthProvider]:
    """A provider that listens, from here to the end of the block."""
    provider = OAuthProvider()
    provider.secrets.append(provider.client_secret)
    handler = type("Handler", (_Handler,), {"provider": provider})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
