"""Whether a host or URL is loopback, or otherwise private."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

_NAME: Final = "localhost"


def is_loopback(host: str) -> bool:
    """Whether a host name or address can be reached only from this machine."""
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
    """Whether third parties cannot read or change a URL's traffic: https, or loopback http."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )
