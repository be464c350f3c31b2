"""Which addresses are public."""

from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import ToolError
from lango.tools.builtin.addresses import Address, allowed_addresses, is_public

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1"]
PUBLIC_V6 = ["2606:4700:4700::1111", "2a00:1450:4001::1", "2400:cb00::1"]
REFUSED = [
    *("0.0.0.1", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255"),
    *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
    *("192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"),
    *("64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1"),
    *("fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "5f00::1"),
]


@pytest.mark.parametrize("text", [*PUBLIC, *PUBLIC_V6])
def test_public_ones(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", REFUSED)
def test_refused_ones(text: str) -> None:
    assert not is_public(ip_address(text))


@given(st.ip_addresses())
def test_what_python_knows_to_be_private_is_refused(address: Address) -> None:
    if not address.is_global or address.is_multicast or address.is_loopback:
        assert not is_public(address)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:", "::", "64:ff9b::"]))
def test_no_address_of_one_kind_hides_in_the_other(address: Address, prefix: str) -> None:
    assert not is_public(ip_address(f"{prefix}{address}"))
    assert not is_public(IPv6Address((0x2002 << 112) | (int(address) << 80)))


async def resolved(*answers: str, allowed: str = "") -> list[str]:
    async def resolver(host: str, port: int) -> list[str]:
        assert (host, port) == ("name.test", 80)
        return [*answers]

    networks = [ip_network(allowed)] if allowed else []
    return await allowed_addresses("name.test", 80, resolver, networks)


async def test_every_address_of_a_name_is_checked() -> None:
    assert await resolved("1.1.1.1", "2606:4700::1") == ["1.1.1.1", "2606:4700::1"]
    with pytest.raises(ToolError, match="not a public address"):
        await resolved("1.1.1.1", "10.0.0.1")
    assert await resolved("1.1.1.1", "10.0.0.1", allowed="10.0.0.0/8") == ["1.1.1.1", "10.0.0.1"]


@pytest.mark.parametrize("answer", ["fe80::1%eth0", "2606:4700::1%eth0"])
async def test_an_address_of_one_link_is_refused(answer: str) -> None:
    with pytest.raises(ToolError, match="not a public address"):
        await resolved(answer)


async def test_a_name_without_an_address() -> None:
    with pytest.raises(ToolError, match="has no address"):
        await resolved()
    with pytest.raises(ToolError, match="has no address that can be used"):
        await resolved("nonsense")


async def test_an_address_is_not_looked_up() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        raise AssertionError((host, port))

    assert await allowed_addresses("1.1.1.1", 80, resolver, []) == ["1.1.1.1"]
