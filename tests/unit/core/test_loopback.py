"""Which hosts are this machine."""

import pytest

from lango.core.loopback import is_loopback, is_private_way


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.9.9.9", "::1", "[::1]"]
)
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "0.0.0.0", "::", "10.0.0.1"),  # noqa: S104
        *("example.com", "localhost.example.com", "127.0.0.1.nip.io"),
    ],
)
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)


def test_an_ipv4_address_in_ipv6_clothes() -> None:
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:10.0.0.1")


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://id.example.com", True),
        ("http://127.0.0.1:8080/realm", True),
        ("http://localhost", True),
        ("http://id.example.com", False),
        ("file:///etc/passwd", False),
        ("id.example.com", False),
        ("https://", False),
        ("https://[::1", False),
    ],
)
def test_which_urls_stay_private(url: str, private: bool) -> None:
    assert is_private_way(url) is private
