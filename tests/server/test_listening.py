"""The address that a server listens on."""

from __future__ import annotations

import socket

import pytest

from lango.errors import ConfigError
from lango.server.listening import listen, require_free


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        for attempt in (listen, require_free):
            with pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 is in use.*--port"):
                attempt("127.0.0.1", port)
    require_free("127.0.0.1", port)
    listen("127.0.0.1", port).close()


def test_of_two_that_start_together_one_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may bind the port while neither listens, so the second learns it only then."""
    real = socket.socket.listen

    def overtaken(bound: socket.socket, *_: int) -> None:
        monkeypatch.setattr(socket.socket, "listen", real)
        with listen(*bound.getsockname()):
            real(bound)

    monkeypatch.setattr(socket.socket, "listen", overtaken)
    with pytest.raises(ConfigError, match="is in use"):
        listen("127.0.0.1", 0)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Cannot listen on 192\.0\.2\.1 port 0: .*--host"):
        listen("192.0.2.1", 0)  # for documentation: no machine has it


def test_a_host_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Cannot listen on nowhere\.invalid port 0: "):
        require_free("nowhere.invalid", 0)


def test_ipv6_can_be_listened_on() -> None:
    with listen("::1", 0) as listening:
        assert listening.family == socket.AF_INET6
