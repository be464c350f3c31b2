"""Files and the types they say they have."""

import pytest

from lango.core.messages.file_types import FILE_TYPES, TypeCheck, declared_type
from lango.errors import MediaTypeError

WAV = b"RIFF\x0a\x00\x00\nWAVEfmt "  # a newline in its length is a byte like another
FILES = {
    "application/json": b'{"a": 1}',
    "application/pdf": b"%PDF-1.7\n",
    "audio/mpeg": b"ID3\x04\x00",
    "audio/wav": WAV,
    "image/gif": b"GIF89a",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
    "text/csv": b"a,b\n",
    "text/markdown": b"# Title",
    "text/plain": "Grüße, GIF89a and ID3 and %PDF".encode(),
}
TEXTS = ("application/json", "text/csv", "text/markdown", "text/plain")


def check(declared: str, *pieces: bytes) -> None:
    type_check = TypeCheck(declared)
    for piece in pieces:
        type_check.see(piece)
    type_check.see(b"", last=True)


def test_every_type_that_is_taken_is_tried() -> None:
    assert tuple(FILES) == FILE_TYPES


@pytest.mark.parametrize("declared", FILES)
@pytest.mark.parametrize("found", FILES)
def test_a_file_is_what_it_says_and_nothing_else(declared: str, found: str) -> None:
    data = FILES[found] + (b" " * 100 if found in TEXTS else bytes(100))
    if declared == found or {declared, found} <= set(TEXTS):
        check(declared, data)
        check(declared, *(data[n : n + 1] for n in range(len(data))))
    else:
        with pytest.raises(MediaTypeError, match=declared):
            check(declared, data)


@pytest.mark.parametrize("beginning", [b"\xff\xfb\x90", b"\xff\xf3\x40", b"\xff\xe2\x00"])
def test_music_need_not_begin_with_a_tag(beginning: bytes) -> None:
    check("audio/mpeg", beginning + bytes(80))


def test_a_pdf_may_begin_with_a_mark_or_space() -> None:
    check("application/pdf", b"\xef\xbb\xbf\r\n%PDF-1.4")


def test_what_has_no_mark_is_believed() -> None:
    check("application/zip", b"PK\x03\x04")
    with pytest.raises(MediaTypeError, match=r"application/zip.*image/png"):
        check("application/zip", FILES["image/png"])


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_may_come_in_two_pieces(cut: int) -> None:
    smile = "\U0001f600".encode()
    check("text/plain", smile[:cut], smile[cut:])
    with pytest.raises(MediaTypeError, match="UTF-8"):
        check("text/plain", smile[:cut])


@pytest.mark.parametrize(
    ("expected", "meant"),
    [
        ("Image/PNG", "image/png"),
        (" text/plain ; charset=UTF-8", "text/plain"),
        ('text/csv; header=present; charset="us-ascii"', "text/csv"),
        ("audio/x-wav", "audio/wav"),
        ("image/jpg", "image/jpeg"),
        ("", ""),
    ],
)
def test_a_type_has_one_name(expected: str, meant: str) -> None:
    assert declared_type(expected) == meant


def test_text_of_another_charset_is_refused() -> None:
    with pytest.raises(MediaTypeError, match="iso-8859-1"):
        declared_type("text/plain; charset=ISO-8859-1")
