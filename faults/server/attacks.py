"""What hostile clients and a noisy tenant do to a server at once, as a process of its own.

    python -m faults.server.attacks http://127.0.0.1:8000 lango_key_of_a_noisy_tenant app 20

It attacks loopback alone, and ends by itself after so many seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from lango.core.keys import KeyText

FLOODERS: Final = 4
"""Connections on which the noisy tenant asks for its sessions, one request behind the other."""
SUBMITTERS: Final = 4
SUBMIT_EVERY: Final = 0.2
SLOW: Final = 200
"""Connections that send a byte of a body, and of a head, every second."""
PIPELINES: Final = 4
PIPELINED: Final = 2_000
STREAMS: Final = 300
STREAM_EVERY: Final = 1.0
"""Seconds until a stream that was refused or ended is opened again."""
GUESSERS: Final = 4
GUESS_EVERY: Final = 0.1
AT_ONCE: Final = "streams at once"
UPLOADERS: Final = 2
UPLOAD: Final = 8 << 20
_LOOPBACK: Final = "127.0.0.1"
_HEAD: Final = (
    "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: 100000\r\n"
)


@dataclass
class Siege:
    """Everything at once, for a while."""

    url: str
    key: str  # of the noisy tenant
    app: str
    counts: Counter[str] = field(default_factory=Counter[str])
    _streams: int = 0

    async def run(self, seconds: float) -> None:
        """Attack, and end."""
        attacks: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (FLOODERS, self._flood),
            (SUBMITTERS, self._submit),
            (SLOW, self._slow_body),
            (SLOW, self._slow_head),
            (PIPELINES, self._pipeline),
            (STREAMS, self._stream),
            (GUESSERS, self._guess),
            (UPLOADERS, self._upload),
        ]
        async with self._client(self.key) as client:  # known before the guesses from this address
            (await client.get("/v1/me")).raise_for_status()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(
                    *(self._again(attack) for number, attack in attacks for _ in range(number))
                )

    async def _again(self, attack: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(OSError, httpx.HTTPError, asyncio.IncompleteReadError):
                await attack()
            await asyncio.sleep(0.2)

    def _client(self, key: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"}
        # Without TLS nothing is verified; loading the certificates of hundreds takes seconds.
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30.0, verify=False)  # noqa: S501

    def _tally(self, what: str, response: httpx.Response) -> None:
        self.counts[f"{what} {response.status_code}"] += 1

    async def _flood(self) -> None:
        async with self._client(self.key) as client:
            while True:
                self._tally("flood", await client.get("/v1/sessions"))

    async def _session(self, client: httpx.AsyncClient) -> str:
        made = await client.post("/v1/sessions", json={"app": self.app})
        made.raise_for_status()
        return str(made.json()["id"])

    async def _submit(self) -> None:
        async with self._client(self.key) as client:
            while True:
                path = f"/v1/sessions/{await self._session(client)}/turns"
                self._tally("submit", await client.post(path, json={"message": "hello"}))
                await asyncio.sleep(SUBMIT_EVERY)

    async def _slow_body(self) -> None:
        await self._drip(_HEAD + f"Authorization: Bearer {self.key}\r\n\r\n{{", " ")

    async def _slow_head(self) -> None:
        await self._drip(_HEAD, "X-More: y\r\n")

    async def _drip(self, first: str, more: str) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(first.encode())
            while not reader.at_eof():
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await reader.read(1_000)
                writer.write(more.encode())
            self.counts["slow, ended by the server"] += 1
        finally:
            writer.close()

    async def _pipeline(self) -> None:
        """Ask without a key, again and again, and read nothing."""
        _, writer = await self._connect()
        try:
            request = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
            while not writer.is_closing():
                writer.write(request * PIPELINED)
                self.counts["pipelined"] += PIPELINED
                await writer.drain()
                await asyncio.sleep(0.01)  # or this process would be the one that is kept busy
        finally:
            writer.close()

    async def _stream(self) -> None:
        """Keep a stream of a turn that lasts."""
        async with self._client(self.key) as client:
            path = f"/v1/sessions/{await self._session(client)}/turns"
            held = {"message": 'call hold {"name": "never"}'}
            turn = (await client.post(path, json=held)).json()["id"]
            while True:
                async with client.stream("GET", f"/v1/turns/{turn}/events") as response:
                    self._tally("stream", response)
                    await self._read_stream(response)
                await asyncio.sleep(STREAM_EVERY)

    async def _read_stream(self, response: httpx.Response) -> None:
        self._streams += response.is_success
        self.counts[AT_ONCE] = max(self.counts[AT_ONCE], self._streams)
        try:
            async for _ in response.aiter_bytes():
                pass
        finally:
            self._streams -= response.is_success

    async def _guess(self) -> None:
        async with self._client(KeyText.new().text) as client:
            self._tally("guess", await client.get("/v1/sessions"))
            await asyncio.sleep(GUESS_EVERY)

    async def _upload(self) -> None:
        async with self._client(self.key) as client:
            path = f"/v1/sessions/{await self._session(client)}/files?name=a.txt"
            while True:
                kind = {"Content-Type": "text/plain"}
                self._tally("upload", await client.post(path, content=b"x" * UPLOAD, headers=kind))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(_LOOPBACK, urlsplit(self.url).port)


def main() -> None:
    """Attack, and print what was answered."""
    url, key, app, seconds = sys.argv[1:]
    if urlsplit(url).hostname != _LOOPBACK:
        raise SystemExit("attacks: only a server on 127.0.0.1 is attacked")
    siege = Siege(url, key, app)
    asyncio.run(siege.run(float(seconds)))
    print(json.dumps(siege.counts))


if __name__ == "__main__":
    main()
