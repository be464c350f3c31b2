"""The proxy counts what a client waits for."""

from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from bench import pg
from bench.store import bare
from bench.store.wire import FrontendMessages, WireProxy


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


_TLS_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
_STARTUP = (14).to_bytes(4, "big") + (196608).to_bytes(4, "big") + b"user\0\0"
_STREAM = (
    _TLS_REQUEST + _STARTUP + _message(b"P", b"select") + _message(b"S") + _message(b"Q", b"begin")
)


@given(st.lists(st.integers(0, len(_STREAM)), max_size=12))
def test_messages_are_the_same_whatever_the_chunks(cuts: list[int]) -> None:
    ends = [*sorted(cuts), len(_STREAM)]
    parser = FrontendMessages()
    found: list[tuple[str, bytes]] = []
    start = 0
    for end in ends:
        found += parser.feed(_STREAM[start:end])
        start = end

    assert [kind for kind, _ in found] == ["refused", "startup", "P", "S", "Q"]
    assert b"".join(message for _, message in found) == _STREAM


async def test_a_prepared_statement_is_one_round_trip(postgres_url: str) -> None:
    server = urlsplit(postgres_url)
    async with WireProxy(server.hostname or "", server.port or 5432) as proxy:
        connection = await pg.connect(pg.with_port(postgres_url, proxy.port))
        await connection.fetch("select $1::int", 1)  # prepared here
        proxy.traffic.reset()
        await connection.fetch("select $1::int", 2)
        once = (proxy.traffic.round_trips, proxy.traffic.statements)
        await connection.execute("begin")
        await connection.execute("commit")
        received = proxy.traffic.received
        await connection.close()

    assert once == (1, 1)
    assert proxy.traffic.statements == 3
    assert received > 0


async def test_the_bare_yardstick_is_one_statement_each(postgres_url: str) -> None:
    await bare.Bare.prepare(postgres_url)
    server = urlsplit(postgres_url)
    async with WireProxy(server.hostname or "", server.port or 5432) as proxy:
        contender = await bare.Bare.open(pg.with_port(postgres_url, proxy.port))
        [session] = await contender.sessions(1)
        writer = await contender.writer(session)
        writer.stage(100, 400)
        for _ in range(90):
            await writer.append()
        await contender.load(session)
        proxy.traffic.reset()
        await writer.append()
        appended = (proxy.traffic.round_trips, proxy.traffic.statements)
        loaded = await contender.load(session)
        await contender.close()

    assert appended == (1, 1)
    assert loaded == bare.ROWS_LOADED
    assert proxy.traffic.round_trips == 2
