"""An HTTP client for the calls of one API: its origin alone, checked addresses, bounded answers.

A name is resolved once for each request, all its addresses are checked, and the connection goes to
a checked address, so that DNS rebinding has no effect. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final

import httpx

from lango.errors import ToolError
from lango.tools.builtin.addresses import Resolver, allowed_addresses, resolve

MAX_ANSWER: Final = 8 << 20
"""Bytes of an answer that are read."""
CONNECT: Final = 5.0
"""Seconds to connect to one of several addresses."""
_PORTS: Final = {"http": 80, "https": 443}
_PLAIN: Final = "identity"
_HEADERS: Final = {"User-Agent": "lango", "Accept-Encoding": _PLAIN}
"""Compressed answers would be decompressed before their size is known."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The scheme, host and port that requests may go to."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str | httpx.URL) -> Origin:
        """The origin of a URL; ValueError if it is none that requests can go to."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url} is no URL") from error
        if parsed.scheme not in _PORTS or not parsed.host:
            raise ValueError(f"{url} begins with neither http:// nor https:// and a host")
        if parsed.userinfo:
            raise ValueError("a URL must not have a user or password in it")
        port = parsed.port or _PORTS[parsed.scheme]
        return cls(parsed.scheme, parsed.raw_host.decode("ascii"), port)


@dataclass(frozen=True, slots=True)
class WebRules:
    """What a client may reach, and for how long."""

    origin: Origin
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that may be reached although they are not public."""
    timeout: float = 30.0


def client_factory(
    rules: WebRules, resolver: Resolver = resolve
) -> Callable[[], httpx.AsyncClient]:
    """Makes a client for each call: two names at one address never share a connection."""

    def client() -> httpx.AsyncClient:
        return _Client(
            transport=CheckedTransport(rules, resolver),
            headers=_HEADERS,
            timeout=httpx.Timeout(rules.timeout, connect=CONNECT),
            trust_env=False,
            follow_redirects=False,
        )

    return client


class _Client(httpx.AsyncClient):
    """A client of one call: the cookies of its request are its own."""

    async def request(
        self, method: str, url: httpx.URL | str, *, cookies: Any = None, **options: Any
    ) -> httpx.Response:
        """Send a request; httpx deprecates cookies of one request."""
        self.cookies.update(cookies)
        return await super().request(method, url, **options)


async def fetch_text(url: str, rules: WebRules, resolver: Resolver = resolve) -> str:
    """The text at a URL; ToolError if there is none."""
    try:
        async with asyncio.timeout(rules.timeout), client_factory(rules, resolver)() as web:
            response = await web.get(url)
    except TimeoutError:
        raise ToolError(f"no complete answer in {rules.timeout:g} s") from None
    if not response.is_success:
        raise ToolError(f"{rules.origin.host} answered with the status {response.status_code}")
    return response.text


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests under the rules; ToolError for what they refuse, and for failures."""

    def __init__(self, rules: WebRules, resolver: Resolver = resolve) -> None:
        self._rules = rules
        self._resolver = resolver
        self._inner = httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the first address that can be connected to."""
        rules, host = self._rules, self._rules.origin.host
        try:
            is_allowed = Origin.of(request.url) == rules.origin
        except ValueError:
            is_allowed = False
        if not is_allowed:
            raise ToolError(f"Requests to {request.url.host} are refused: only {host} is allowed.")
        addresses = await allowed_addresses(host, rules.origin.port, self._resolver, rules.networks)
        for address in addresses:
            try:
                return self._bounded(await self._inner.handle_async_request(_to(request, address)))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except httpx.HTTPError as error:
                raise _no_answer(host, error) from error
        raise ToolError(f"{host} cannot be reached.")

    def _bounded(self, response: httpx.Response) -> httpx.Response:
        packed = response.headers.get("Content-Encoding", _PLAIN)
        if packed != _PLAIN:
            raise ToolError(f"The answer is packed ({packed[:20]}) though that was declined.")
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - of the inner one
        stream = _BoundedStream(response.stream, self._rules.origin.host)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    """An answer that is given up when it becomes too long."""

    def __init__(self, stream: httpx.AsyncByteStream, host: str) -> None:
        self._stream = stream
        self._host = host

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._stream:
                size += len(chunk)
                if size > MAX_ANSWER:
                    raise ToolError(
                        f"The answer of {self._host} is over {MAX_ANSWER >> 20} MiB, and was not "
                        "read. The call was done: ask for less."
                    )
                yield chunk
        except httpx.HTTPError as error:
            raise _no_answer(self._host, error) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _to(request: httpx.Request, address: str) -> httpx.Request:
    """The request to an address of its host; `Host` and the TLS name stay those of the host."""
    host = request.url.raw_host.decode("ascii")
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


def _no_answer(host: str, error: httpx.HTTPError) -> ToolError:
    return ToolError(
        f"{host} gave no complete answer ({type(error).__name__}). It may have been done or not."
    )
