"""Server-sent events: what the standard says, however the bytes are split."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from anthropic import AsyncStream
from httpx import Response
from hypothesis import given
from hypothesis import strategies as st

from lango.providers.shared.sse import EventStreamParser, ServerSentEvent

LINES = st.one_of(
    st.sampled_from(["", "", "data", "data:", "event:", ":", "id: 7", "retry: 10", "data:: x"]),
    st.builds(
        "{}:{}{}".format,
        st.sampled_from(["data", "event", "", "other", " data"]),
        st.sampled_from(["", " ", "  "]),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8),
    ),
)
BODIES = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=25).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)


def parse(pieces: Iterable[bytes]) -> list[ServerSentEvent]:
    parser = EventStreamParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"event: e\ndata:a\n\n", [(b"e", b"a")]),
        (b"data: a\ndata: b\ndata\n\n", [(b"", b"a\nb\n")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
        (b"data: a\r\n\ndata: b\r\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
        (b": keep-alive\n\n:\n\nid: 1\nretry: 2\nnew: 3\n\n", []),
        (b"event: error\n\n", [(b"error", b"")]),
        (b"data:  two spaces\n\n", [(b"", b" two spaces")]),
        ("data: \u2028\x85\x0b\x0c\x1c\n\n".encode(), [(b"", "\u2028\x85\x0b\x0c\x1c".encode())]),
        (b"data: cut off\n", []),
        (b"data: cut off", []),
    ],
)
def test_the_standard(body: bytes, events: list[ServerSentEvent]) -> None:
    assert parse([body]) == events
    assert parse(bytes([byte]) for byte in body) == events


@given(body=BODIES, cuts=st.lists(st.integers(0, 300)))
def test_any_split_gives_the_same_events(body: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(bounds)]
    assert parse(pieces) == parse([body])


@given(body=BODIES, size=st.integers(1, 40))
async def test_the_events_are_those_of_a_vendors_sdk(body: bytes, size: int) -> None:
    """The SDK also returns events that have an id alone, or none but an earlier one's."""
    response = Response(200, content=body)
    sdk = [
        ((event.event or "").encode(), event.data.encode())
        async for event in AsyncStream.raw_events(response)
        if event.event or any(line.partition(":")[0] == "data" for line in event.raw)
    ]
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    assert parse(pieces) == sdk


def test_a_line_in_many_pieces() -> None:
    parser, piece = EventStreamParser(), b"x" * 1_000
    assert parser.feed(b"data: ") == []
    for _ in range(5_000):
        assert parser.feed(piece) == []
    assert parser.feed(b"\n\n") == [(b"", piece * 5_000)]
