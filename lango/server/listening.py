"""The address that a server listens on: commands check it before they import ADK."""

from __future__ import annotations

import errno
import socket
from typing import Final

from lango.core.loopback import is_loopback
from lango.errors import ConfigError

_OPTIONS: Final = ("--port", "--host")
METRICS_OPTIONS: Final = ("the setting metrics.port", "the setting metrics.host")


def listen(host: str, port: int, options: tuple[str, str] = _OPTIONS) -> socket.socket:
    """A listening socket; port 0 takes any free one. ConfigError if the address is not usable.

    `options` are the names of the options for the port and the host, for the error message.
    """
    bound = _bound(host, port, options)
    try:
        bound.listen()
    except OSError as error:  # another process has begun to listen since it was bound
        bound.close()
        raise _refusal(host, port, options, error) from error
    return bound


def require_free(host: str, port: int, options: tuple[str, str] = _OPTIONS) -> None:
    """ConfigError if `listen` would fail now."""
    _bound(host, port, options).close()


def web_address(host: str, port: int) -> str:
    """The URL of a server on this address."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def require_loopback(host: str) -> None:
    """ConfigError if others could reach a server on this address."""
    if not is_loopback(host):
        raise ConfigError(
            f"ADK's web UI has no authentication: it is served on loopback addresses only, not on "
            f"{host}. Leave --host out, or use `lango serve`."
        )


def _bound(host: str, port: int, options: tuple[str, str]) -> socket.socket:
    """A socket bound to the address, which does not listen yet."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        return _bind(family, address)
    except OSError as error:
        raise _refusal(host, port, options, error) from error


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    server_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted server need not wait until its old connections are closed.
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server_socket.bind(address)
    except OSError:
        server_socket.close()
        raise
    return server_socket


def _refusal(host: str, port: int, options: tuple[str, str], error: OSError) -> ConfigError:
    port_option, host_option = options
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Port {port} of {host} is in use. Stop the program that uses it, or choose another "
            f"port with {port_option} (0 takes any free one)."
        )
    return ConfigError(
        f"Cannot listen on {host} port {port}: {error.strerror or error}. "
        f"Choose another address with {host_option}, or another port with {port_option}."
    )
