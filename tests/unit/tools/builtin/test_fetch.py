"""Fetching from the public web, and the addresses that are not part of it.

A real server listens on every address of this machine and counts who connects. `networks` lets a
test in where it wants to be; without it, nothing here is public.
"""

import asyncio
import contextlib
import gzip
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lango.errors import ToolError
from lango.tools.builtin import fetch
from lango.tools.builtin.fetch import Fetcher, FetchOptions, fetch_tools

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
ANY = "0.0.0.0"  # noqa: S104 - counts connections to any address
EVERYWHERE = ("0.0.0.0/0", "::/0")


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


IPV6 = _has_ipv6()


class Web:
    """A server that sends the test's answer, and records every connection and request."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: list[str] = []
        self.requests: list[str] = []
        self.answer: Callable[[str], bytes] = lambda _: HELLO
        self.stall = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer.get_extra_info("sockname")[0])
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(request)
            writer.write(self.answer(request.split()[1]))
            await writer.drain()
            if self.stall:
                await reader.read()
        writer.close()

    def url(self, host: str = "127.0.0.1", path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest_asyncio.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    server = await asyncio.start_server(web.serve, ANY, 0)
    web.port = server.sockets[0].getsockname()[1]
    if IPV6:  # both kinds at one port, for a URL has only one
        server.close()
        await server.wait_closed()
        server = await asyncio.start_server(web.serve, [ANY, "::"], web.port)
    async with server:
        yield web


def fetcher(
    web: Web, names: Mapping[str, Sequence[Sequence[str]]] | None = None, **options: Any
) -> Any:
    """A fetcher that may use the server's port, and resolves each name to its next answer."""
    answers = {name: iter(given) for name, given in (names or {}).items()}

    async def resolver(host: str, port: int) -> Sequence[str]:
        if names is None:
            return await fetch.resolve(host, port)
        return next(answers[host])

    return Fetcher(FetchOptions(ports=(80, 443, web.port), **options), resolver)


# --- what is not public --------------------------------------------------------------------------

HOSTILE = [
    # this machine, in every spelling
    *("http://127.0.0.1:P/", "http://127.1:P/", "http://127.0.1:P/", "http://127.8.8.8:P/"),
    *("http://2130706433:P/", "http://0x7f000001:P/", "http://0x7f.0x0.0x0.0x1:P/"),
    *("http://0177.0.0.1:P/", "http://017700000001:P/", "http://0:P/", "http://0.0.0.0:P/"),
    *("http://localhost:P/", "http://LOCALHOST:P/", "http://localhost.:P/"),
    *("http://[::1]:P/", "http://[::]:P/", "http://[0:0:0:0:0:0:0:1]:P/"),
    *("http://[::ffff:127.0.0.1]:P/", "http://[::ffff:7f00:1]:P/", "http://[::127.0.0.1]:P/"),
    *("http://[64:ff9b::7f00:1]:P/", "http://[2002:7f00:1::]:P/", "http://[fe80::1]:P/"),
    *("http://[fe80::1%25lo]:P/", "http://[2001:0:7f00:1::]:P/", "http://127.0.0.1.:P/"),
    *("http://\u2460\u2461\u2466.0.0.1:P/", "http://\uff11\uff12\uff17.0.0.1:P/"),
    # other people's machines that are not public
    *("http://169.254.169.254:P/latest/meta-data/", "http://10.0.0.1:P/", "http://192.168.0.1:P/"),
    *("http://172.16.0.1:P/", "http://100.64.0.1:P/", "http://100.100.100.200:P/"),
    *("http://168.63.129.16:P/", "http://[fd00:ec2::254]:P/", "http://224.0.0.1:P/"),
    *("http://255.255.255.255:P/", "http://198.18.0.1:P/", "http://192.0.2.1:P/"),
    # other schemes, other people's names, and what one parser reads in another way than the next
    *("file:///etc/passwd", "ftp://127.0.0.1:P/", "gopher://127.0.0.1:P/", "//127.0.0.1:P/"),
    *("unix:///var/run/docker.sock", "dict://127.0.0.1:P/", "127.0.0.1:P", "http:///x", "http://"),
    *("http://user:pass@127.0.0.1:P/", "http://example.com@127.0.0.1:P/", "http://:@127.0.0.1:P/"),
    *("http://127.0.0.1:P\\@example.com/", "http://example.com\\@127.0.0.1:P/"),
    *("http://127.0.0.1:P#@example.com/", "http://127.0.0.1:P?@example.com/"),
    *("http://127.0.0.1 :P/", "http://127.0.0.1\t:P/", "http://127.0.0.1:P/\r\nHost: x"),
    *("http://127.0.0.1:P/\x00", "javascript:alert(1)", "data:text/plain,x", "HTTP://127.0.0.1:P/"),
    *("http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "x" * 5000),
]


def test_there_are_forty_hostile_urls_and_more() -> None:
    assert len(set(HOSTILE)) >= 40


async def test_hostile_urls_reach_no_server(web: Web) -> None:
    for url in HOSTILE:
        with pytest.raises(ToolError):
            await fetcher(web).fetch_url(url.replace("P", str(web.port), 1) if ":P" in url else url)
    assert web.connections == []


async def test_the_same_server_would_have_been_reached(web: Web) -> None:
    """The test above can fail: with the networks allowed, the very same URLs connect."""
    for url in HOSTILE[:6]:
        result = await fetcher(web, networks=EVERYWHERE).fetch_url(url.replace("P", str(web.port)))
        assert result["text"] == "hello"
    assert len(web.connections) == 6


@pytest.mark.parametrize(
    "answer",
    [
        *(["127.0.0.1"], ["::1"], ["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], [ANY]),
        *(["::ffff:127.0.0.1"], ["fe80::1%lo"], ["10.0.0.1"], ["169.254.169.254"]),
    ],
)
async def test_a_name_that_leads_here(web: Web, answer: list[str]) -> None:
    with pytest.raises(ToolError, match="not a public address"):
        await fetcher(web, {"innocent.test": [answer]}).fetch_url(web.url("innocent.test"))
    assert web.connections == []


async def test_a_name_that_changes_its_mind(web: Web) -> None:
    """The fetch connects to the address it checked, and resolves the name once."""
    names = {"rebind.test": [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]]}
    made = fetcher(web, names, networks=("127.0.0.2/32",))
    assert (await made.fetch_url(web.url("rebind.test")))["text"] == "hello"
    assert web.connections == ["127.0.0.2"]
    with pytest.raises(ToolError, match="not a public address"):
        await made.fetch_url(web.url("rebind.test"))
    assert web.connections == ["127.0.0.2"]


# --- redirects -----------------------------------------------------------------------------------


def redirect(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize(
    "location",
    [
        *("http://127.0.0.1:P/", "//127.0.0.1:P/", "http://localhost:P/", "http://[::1]:P/"),
        *("http://2130706433:P/", "http://u:p@127.0.0.2:P/", "file:///etc/passwd", "gopher://x/"),
        *("http://127.0.0.2:22/", "http://127.0.0.2:P\\@127.0.0.1:P/", "http://["),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_checked_like_any_url(web: Web, location: str, status: int) -> None:
    web.answer = lambda _: redirect(location.replace("P", str(web.port)), status)
    with pytest.raises(ToolError):
        await fetcher(web, networks=("127.0.0.2/32",)).fetch_url(web.url("127.0.0.2"))
    assert web.connections == ["127.0.0.2"]


async def test_a_redirect_to_a_name_that_changed_its_mind(web: Web) -> None:
    web.answer = lambda _: redirect("/again")
    names = {"rebind.test": [["127.0.0.2"], ["127.0.0.1"]]}
    with pytest.raises(ToolError, match="not a public address"):
        await fetcher(web, names, networks=("127.0.0.2/32",)).fetch_url(web.url("rebind.test"))
    assert web.connections == ["127.0.0.2"]


async def test_five_redirects_are_followed_and_no_more(web: Web) -> None:
    web.answer = lambda path: HELLO if path == "/5" else redirect(f"/{int(path[1:]) + 1}")
    made = fetcher(web, networks=EVERYWHERE)
    assert (await made.fetch_url(web.url(path="/0")))["url"] == web.url(path="/5")
    assert len(web.connections) == 6
    web.answer = lambda path: redirect(f"/{int(path[1:]) + 1}")
    with pytest.raises(ToolError, match="More than 5 redirects"):
        await made.fetch_url(web.url(path="/0"))
    assert len(web.connections) == 12


# --- what is asked and answered ------------------------------------------------------------------


async def test_the_name_is_asked_for_at_the_checked_address(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    made = fetcher(web, {"site.test": [["127.0.0.3"]]}, networks=("127.0.0.3/32",))
    result = await made.fetch_url(web.url("site.test", "/a?b=c#d"))
    assert result == {"url": web.url("site.test", "/a?b=c"), "status": 200, "text": "hello"}
    (request,) = web.requests
    assert request.startswith("GET /a?b=c HTTP/1.1\r\n")
    assert f"Host: site.test:{web.port}\r\n" in request
    assert "ookie" not in request
    assert "uthorization" not in request


@pytest.mark.skipif(not IPV6, reason="this machine has no IPv6")
async def test_ipv6(web: Web) -> None:
    assert (await fetcher(web, networks=EVERYWHERE).fetch_url(web.url("[::1]")))["text"] == "hello"
    assert web.connections == ["::1"]


async def test_the_next_address_when_one_does_not_answer(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CONNECT", 0.2)
    names = {"two.test": [["fd00::dead", "127.0.0.1"], ["fd00::dead"]]}
    made = fetcher(web, names, networks=EVERYWHERE)
    assert (await made.fetch_url(web.url("two.test")))["text"] == "hello"
    with pytest.raises(ToolError, match=r"two\.test cannot be reached"):
        await made.fetch_url(web.url("two.test"))


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        *(("text/html; charset=utf-8", True), ("application/json", True), ("text/markdown", True)),
        *(("application/ld+json", True), ("application/atom+xml", True), ("TEXT/PLAIN", True)),
        *(("image/png", False), ("application/octet-stream", False), ("", False), ("/", False)),
        *(("application/zip", False), ("video/mp4", False), ("application/pdf", False)),
    ],
)
async def test_only_texts_are_taken(web: Web, kind: str, taken: bool) -> None:
    web.answer = lambda _: HELLO.replace(b"text/plain", kind.encode())
    made = fetcher(web, networks=EVERYWHERE)
    if taken:
        assert (await made.fetch_url(web.url()))["text"] == "hello"
    else:
        with pytest.raises(ToolError, match="not a text"):
            await made.fetch_url(web.url())


async def test_a_long_answer_is_cut_and_not_waited_for(web: Web) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    web.answer = lambda _: head + b"x" * 100_000
    web.stall = True  # more would come, and the fetch must not wait for it
    result = await fetcher(web, networks=EVERYWHERE, max_bytes=1000).fetch_url(web.url())
    assert (len(result["text"]), result["truncated"]) == (1000, True)


async def test_an_answer_that_never_ends_runs_out_of_time(web: Web) -> None:
    web.answer = lambda _: HELLO.replace(b"Content-Length: 5", b"Content-Length: 50")
    web.stall = True
    with pytest.raises(ToolError, match=r"did not answer|No complete answer in 0\.3 s"):
        await fetcher(web, networks=EVERYWHERE, timeout=0.3).fetch_url(web.url())


async def test_a_packed_answer_is_not_unpacked(web: Web) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n"
    web.answer = lambda _: head + bomb
    with pytest.raises(ToolError, match="packed"):
        await fetcher(web, networks=EVERYWHERE).fetch_url(web.url())
    assert "Accept-Encoding: identity\r\n" in web.requests[0]


@pytest.mark.parametrize(
    "raw", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", b"\0" * 99]
)
async def test_what_is_no_answer(web: Web, raw: bytes) -> None:
    web.answer = lambda _: raw
    with pytest.raises(ToolError):
        await fetcher(web, networks=EVERYWHERE).fetch_url(web.url())


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("utf-8", "ä€".encode(), "ä€"),
        ("iso-8859-1", b"\xe4", "ä"),
        ("nonsense", "ä".encode(), "ä"),
        ("rot13", b"abc", "abc"),
        ("utf-8", b"\xff", "\ufffd"),
    ],
)
async def test_charsets(web: Web, charset: str, body: bytes, text: str) -> None:
    head = f"HTTP/1.1 404 Gone\r\nContent-Type: text/plain; charset={charset}\r\n\r\n"
    web.answer = lambda _: head.encode() + body
    result = await fetcher(web, networks=EVERYWHERE).fetch_url(web.url())
    assert (result["status"], result["text"]) == (404, text)


async def test_only_the_hosts_that_are_named(web: Web) -> None:
    names = {name: [["127.0.0.1"]] for name in ("docs.test", "en.docs.test")}
    made = fetcher(web, names, networks=EVERYWHERE, hosts=("Docs.test.",))
    for name in names:
        assert (await made.fetch_url(web.url(name)))["text"] == "hello"
    for name in ("evildocs.test", "docs.test.evil.test", "test", "127.0.0.1"):
        with pytest.raises(ToolError, match=r"may not be fetched; allowed are docs\.test"):
            await made.fetch_url(web.url(name))
    assert len(web.connections) == 2


async def test_only_the_ports_that_are_named(web: Web) -> None:
    options = FetchOptions.model_validate({"networks": EVERYWHERE})
    with pytest.raises(ToolError, match=f"Port {web.port} may not be fetched; allowed are 80, 443"):
        await Fetcher(options).fetch_url(web.url())
    assert web.connections == []


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for site.test, and its key, in one file."""
    both = tmp_path / "site.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=site.test", "-addext", "subjectAltName=DNS:site.test"),
            *("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    both.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    return both


async def test_the_certificate_must_be_the_names(
    web: Web, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    trusted = ssl.create_default_context(cafile=str(certificate))
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0, ssl=served)
    async with server:
        port = server.sockets[0].getsockname()[1]
        names = {name: [["127.0.0.1"]] * 2 for name in ("site.test", "other.test")}
        web.port = port
        with pytest.raises(ToolError, match="cannot be reached"):  # an untrusted certificate
            await fetcher(web, names, networks=EVERYWHERE).fetch_url(f"https://site.test:{port}/")
        monkeypatch.setattr(fetch, "_tls", lambda: trusted)
        made = fetcher(web, names, networks=EVERYWHERE)
        assert (await made.fetch_url(f"https://site.test:{port}/"))["text"] == "hello"
        with pytest.raises(ToolError, match="cannot be reached"):
            await made.fetch_url(f"https://other.test:{port}/")


def test_the_tool() -> None:
    (tool,) = fetch_tools(FetchOptions())
    assert (tool.name, tool.idempotent, tool.require_confirmation) == ("fetch_url", True, False)
    assert tool.parameters["required"] == ["url"]
