"""Whether a host is this machine, and nobody else's way to it."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, can be reached from this machine alone."""
    if host.lower().rstrip(".") == _NAME:
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_private_way(url: str) -> bool:
    """Whether nobody on the way can read or change what a URL brings: https, or loopback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )
