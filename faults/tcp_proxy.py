"""A TCP proxy before PostgreSQL that can lose, hold back and delay the reply to a commit."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from typing import NamedTuple, Self


class Fault(NamedTuple):
    """What happens to a reply: after so many seconds it arrives, or the connection is cut."""

    seconds: float
    arrives: bool


class Proxy:
    """Passes everything on, but for replies that `choose` has a fault for, given what commits."""

    def __init__(self, host: str, port: int, choose: Callable[[str], Fault | None]) -> None:
        self._server_at, self._choose = (host, port), choose

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.port: int = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()

    async def _link(self, client: StreamReader, out: StreamWriter) -> None:
        server, up = await asyncio.open_connection(*self._server_at)
        faults, idle = list[Fault](), False

        async def requests() -> None:
            while data := await client.read(65_536):
                commits = data.startswith(b"Q") and b"COMMIT" in data and "commit"
                # A statement outside of a transaction commits by itself.
                commits = commits or (idle and data.startswith(b"B") and "autocommit")
                if commits and (fault := self._choose(commits)) is not None:
                    faults.append(fault)
                up.write(data)

        async def replies() -> None:
            nonlocal idle
            while data := await server.read(65_536):
                idle = data.endswith(b"Z\0\0\0\5I")  # ready, and no transaction is open
                fault = faults.pop() if faults else Fault(0.0, arrives=True)
                await asyncio.sleep(fault.seconds)
                if not fault.arrives:
                    return
                out.write(data)

        ways = [asyncio.create_task(requests()), asyncio.create_task(replies())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for stream, way in zip((up, out), ways, strict=True):
            stream.transport.abort()
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
