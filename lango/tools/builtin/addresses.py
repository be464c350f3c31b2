"""Addresses that a tool may connect to: public ones, and networks allowed in the options."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from lango.errors import ToolError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name."""

# Listed here because Python's `is_global` differs between releases.
REFUSED: Final[tuple[Network, ...]] = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; a cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's internal services, though the range is public
        "169.254.0.0/16",  # link-local; the clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",
        "2001::/23",  # Teredo, which holds an IPv4 address, and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",
    )
)
# All other IPv6 is loopback, local, multicast, NAT64, mapped IPv4 or unassigned.
PUBLIC_V6: Final = ip_network("2000::/3")


def is_public(address: Address) -> bool:
    """Whether this is a public internet address."""
    if address.version == 6 and address not in PUBLIC_V6:
        return False
    return not any(address in network for network in REFUSED)


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as this machine resolves it."""
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


async def allowed_addresses(
    host: str, port: int, resolver: Resolver, allowed: Sequence[Network]
) -> list[str]:
    """The addresses to connect to; ToolError if any of the host's addresses is not allowed."""
    try:
        resolved = [host] if _is_literal(host) else await resolver(host, port)
    except (OSError, UnicodeError):
        raise ToolError(f"The name {host} cannot be resolved.") from None
    addresses = [_address(text, host) for text in resolved]
    if not addresses:
        raise ToolError(f"The name {host} has no address.")
    for address in addresses:
        if not (is_public(address) or any(address in network for network in allowed)):
            raise ToolError(f"{host} is not a public address, and may not be fetched.")
    return [str(address) for address in addresses]


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _address(text: str, host: str) -> Address:
    """An address without a zone: one with a zone belongs to this machine's links."""
    try:
        address = ip_address(text)
    except ValueError:
        raise ToolError(f"The name {host} has no address that can be used.") from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise ToolError(f"{host} is not a public address, and may not be fetched.")
    return address
