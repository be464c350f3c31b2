"""The built-in tool `fetch`: texts from the public web only.

A name is resolved once, all its addresses are checked, and the connection goes to a checked
address, so that DNS rebinding has no effect. Each redirect repeats this.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from functools import cache
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Final

import httpx
from pydantic import Field

from lango.core.values import JsonObject
from lango.errors import ToolError
from lango.tools.base import Tool
from lango.tools.builtin.addresses import Resolver, allowed_addresses, resolve
from lango.tools.function import tool
from lango.tools.options import Options

MAX_URL: Final = 2_048
MAX_REDIRECTS: Final = 5
CONNECT: Final = 5.0
"""Seconds to connect to one of several addresses."""
GRACE: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_BAD_LETTERS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_TEXT: Final = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml)|application/(x-)?(javascript|ndjson|yaml|toml)"
)
_HEADERS: Final = {
    "User-Agent": "lango",
    "Accept": "text/*, application/json, application/xml;q=0.9, */*;q=0.1",
    # Compressed answers would be decompressed before their size is known.
    "Accept-Encoding": "identity",
}


class FetchOptions(Options):
    """The tool's options."""

    hosts: tuple[str, ...] = ()
    """The only hosts that may be fetched, with their subdomains; empty: all public ones."""
    ports: tuple[int, ...] = (80, 443)
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that may be reached although they are not public."""
    max_bytes: int = Field(default=512 * 1024, ge=1)
    timeout: float = Field(default=20.0, gt=0)
    """Seconds for the whole call, including redirects."""
    max_redirects: int = Field(default=MAX_REDIRECTS, ge=0, le=MAX_REDIRECTS)


def fetch_tools(options: FetchOptions) -> list[Tool]:
    """The tool `fetch_url`."""
    return [tool(idempotent=True, timeout=options.timeout + GRACE)(Fetcher(options).fetch_url)]


class Fetcher:
    """Fetches URLs that the options allow."""

    def __init__(self, options: FetchOptions, resolver: Resolver = resolve) -> None:
        self._options = options
        self._resolver = resolver

    async def fetch_url(
        self, url: Annotated[str, Field(description="An http or https address.")]
    ) -> JsonObject:
        """Fetch a text from a public web address."""
        try:
            async with asyncio.timeout(self._options.timeout):
                return await self._follow(self._checked(url))
        except TimeoutError:
            raise ToolError(f"No complete answer in {self._options.timeout:g} s.") from None

    async def _follow(self, url: httpx.URL) -> JsonObject:
        for _ in range(self._options.max_redirects + 1):
            answer = await self._get(url)
            if isinstance(answer, dict):
                return answer
            url = self._checked(answer)
        raise ToolError(f"More than {self._options.max_redirects} redirects.")

    def _checked(self, text: str) -> httpx.URL:
        """The URL, checked as far as possible without resolving its host."""
        if len(text) > MAX_URL or _BAD_LETTERS.search(text):
            raise ToolError("The URL is too long, or holds a character that no URL may hold.")
        try:
            url = httpx.URL(text)
        except (httpx.InvalidURL, ValueError):
            raise ToolError("This is no URL.") from None
        if url.scheme not in _PORTS or not url.host:
            raise ToolError("Only http:// and https:// addresses can be fetched.")
        if url.userinfo:
            raise ToolError("A URL with a user or password in it is not fetched.")
        if _port(url) not in self._options.ports:
            ports = ", ".join(map(str, self._options.ports))
            raise ToolError(f"Port {_port(url)} may not be fetched; allowed are {ports}.")
        self._check_host(url.host)
        return url.copy_with(fragment=None)

    def _check_host(self, host: str) -> None:
        hosts = [allowed.lower().strip(".") for allowed in self._options.hosts]
        name = host.lower().rstrip(".")
        if hosts and not any(
            name == allowed_host or name.endswith(f".{allowed_host}") for allowed_host in hosts
        ):
            raise ToolError(f"{host} may not be fetched; allowed are {', '.join(hosts)}.")

    async def _get(self, url: httpx.URL) -> JsonObject | str:
        """The answer, or the target of a redirect."""
        addresses = await allowed_addresses(
            _host(url), _port(url), self._resolver, self._options.networks
        )
        for address in addresses:
            try:
                return await self._get_from(address, url)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise ToolError(f"{url.host} did not answer ({type(error).__name__}).") from error
        raise ToolError(f"{url.host} cannot be reached.")

    async def _get_from(self, address: str, url: httpx.URL) -> JsonObject | str:
        limits = httpx.Timeout(self._options.timeout, connect=CONNECT)
        # A client for each request: two names at one address never share a connection.
        async with (
            httpx.AsyncClient(verify=_tls(), trust_env=False, timeout=limits) as web,
            web.stream(
                "GET",
                url.copy_with(host=address),
                headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": _host(url)},
                follow_redirects=False,
            ) as response,
        ):
            if response.has_redirect_location:
                return str(url.join(response.headers["Location"]))
            _check_text(response)
            data, truncated = await self._read(response)
        text = data.decode(_charset(response), "replace")
        answer: JsonObject = {"url": str(url), "status": response.status_code, "text": text}
        return answer | {"truncated": True} if truncated else answer

    async def _read(self, response: httpx.Response) -> tuple[bytes, bool]:
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > self._options.max_bytes:
                return bytes(data[: self._options.max_bytes]), True
        return bytes(data), False


def _host(url: httpx.URL) -> str:
    """The host in its ASCII form, for DNS and TLS."""
    return url.raw_host.decode("ascii")


def _port(url: httpx.URL) -> int:
    return url.port or _PORTS[url.scheme]


def _check_text(response: httpx.Response) -> None:
    kind = _kind(response)
    if not _TEXT.fullmatch(kind):
        raise ToolError(f"The answer is {kind or 'of no stated type'}, and not a text.")
    packed = response.headers.get("Content-Encoding", "identity")
    if packed != "identity":
        raise ToolError(f"The answer is packed ({packed[:20]}) though that was declined.")


def _kind(response: httpx.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()[:100]


def _charset(response: httpx.Response) -> str:
    """The charset that the answer names, if Python knows it as a text encoding; else UTF-8."""
    name = response.charset_encoding or "utf-8"
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return "utf-8"
    return name


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
