"""The bytes that a request's `Range` names."""

from contextlib import suppress

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from lango.server.http.ranges import requested_range

ETAG = '"abc"'


def span(header: str, if_range: str = ETAG) -> tuple[int, int, int]:
    part = requested_range({"range": header, "if-range": if_range}, 100, ETAG)
    return part.status, part.start, part.end


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", (206, 0, 1)),
        ("bytes=10-", (206, 10, 100)),
        ("bytes=0-", (206, 0, 100)),
        ("bytes=90-200", (206, 90, 100)),
        ("bytes=-5", (206, 95, 100)),
        ("bytes=-500", (206, 0, 100)),
        ("", (200, 0, 100)),
        ("bytes=-", (200, 0, 100)),
        ("bytes=9-8", (200, 0, 100)),
        ("bytes=0-1,5-6", (200, 0, 100)),
        ("lines=0-1", (200, 0, 100)),
        ("bytes=٣-٤", (200, 0, 100)),
        (f"bytes={'9' * 5000}-", (200, 0, 100)),
    ],
)
def test_a_range(header: str, expected: tuple[int, int, int]) -> None:
    assert span(header) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_after_the_end(header: str) -> None:
    with pytest.raises(HTTPException) as raised:
        span(header)
    assert raised.value.status_code == 416
    assert raised.value.headers == {"Content-Range": "bytes */100"}


def test_only_a_copy_of_the_same_file_is_continued() -> None:
    assert span("bytes=10-", ETAG) == (206, 10, 100)
    assert span("bytes=10-", '"other"') == (200, 0, 100)
    assert span("bytes=10-", f"W/{ETAG}") == (200, 0, 100)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 60))
def test_the_headers_say_which_bytes_come(size: int, first: int, last: int) -> None:
    try:
        part = requested_range({"range": f"bytes={first}-{last}"}, size, ETAG)
    except HTTPException:
        assert first >= size
        return
    assert 0 <= part.start < part.end <= size
    assert part.headers["Content-Length"] == str(part.end - part.start)
    if part.is_part:
        assert part.headers["Content-Range"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    else:
        assert last < first
        assert "Content-Range" not in part.headers


@given(st.text() | st.from_regex(r"bytes=[0-9]*-[0-9]*"))
def test_any_header_is_a_range_or_the_whole_file(header: str) -> None:
    with suppress(HTTPException):
        part = requested_range({"range": header}, 100, ETAG)
        assert 0 <= part.start < part.end <= 100
