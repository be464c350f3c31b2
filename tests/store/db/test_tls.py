"""TLS to PostgreSQL, on a server of the test's own: which certificates are accepted."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy.ext.asyncio import AsyncConnection

from faults.database.own_cluster import own_cluster
from lango.config.load import load
from lango.errors import StoreError
from lango.store.db.retry import is_transient
from lango.store.schema import migrate
from lango.store.sessions.store import SqlSessionStore

HOST = "localhost"
LIFETIME = timedelta(days=2)


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """A CA of the test."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        self.file = folder / f"{name}.pem"
        is_ca = x509.BasicConstraints(ca=True, path_length=None)
        made = self._signed(self._name, self._key.public_key(), is_ca)
        self.file.write_bytes(made)

    def certificate(self, host: str, folder: Path) -> None:
        """Write a certificate of a server and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = x509.SubjectAlternativeName([x509.DNSName(host)])
        (folder / "server.pem").write_bytes(self._signed(named(host), key.public_key(), hosts))
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (folder / "server.key").write_bytes(secret)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, more: x509.ExtensionType
    ) -> bytes:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFETIME)
            .not_valid_after(now + LIFETIME)
            .add_extension(more, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True)
class TlsServer:
    """A PostgreSQL server whose certificate is valid for HOST."""

    port: int
    ca: Path
    other_ca: Path

    def url(self, host: str = HOST) -> str:
        return f"postgresql://postgres@{host}:{self.port}/postgres"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[TlsServer]:
    folder = tmp_path_factory.mktemp("authorities")
    ours, others = Authority(folder, "ours"), Authority(folder, "others")
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(own_cluster())
        except FileNotFoundError as error:  # where PostgreSQL is another machine's
            pytest.skip(str(error))
        ours.certificate(HOST, cluster.folder)
        key = cluster.folder / "server.key"
        key.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(key, "postgres")
        with (cluster.folder / "data/postgresql.conf").open("a") as settings:
            settings.write(f"ssl_cert_file = '{cluster.folder}/server.pem'\n")
            settings.write(f"ssl_key_file = '{key}'\nssl = on\n")
        cluster.restart()
        yield TlsServer(cluster.port, ours.file, others.file)


def full_url(url: str, tls: str, ca: Path | None = None) -> str:
    """The URL of the store in settings with these values."""
    store = {"url": url, "tls": tls, "tls_ca": str(ca) if ca else None}
    return load(flags={"store": store}).settings.store.full_url


async def is_encrypted(url: str) -> bool:
    """Whether the connections of a store have TLS."""

    async def look(connection: AsyncConnection) -> bool:
        own = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
        return bool(await connection.scalar(sa.text(own)))

    await migrate.upgrade(url)
    async with SqlSessionStore(url) as store:
        return await store.database.read(look)


async def test_a_verified_server_is_used(server: TlsServer) -> None:
    assert await is_encrypted(full_url(server.url(), "verify-full", server.ca))
    assert await is_encrypted(full_url(server.url("127.0.0.1"), "verify-ca", server.ca))
    assert await is_encrypted(full_url(server.url("127.0.0.1"), "require"))
    assert not await is_encrypted(full_url(server.url(), "disable"))


@pytest.mark.parametrize("tls", ["verify-full", "verify-ca", "require"])
async def test_a_certificate_of_another_authority_is_refused(server: TlsServer, tls: str) -> None:
    with pytest.raises(StoreError, match=r"refused: .*certificate.*store\.tls_ca") as caught:
        await SqlSessionStore(full_url(server.url(), tls, server.other_ca)).open()
    assert not is_transient(caught.value)
    assert not is_transient(caught.value.__cause__ or caught.value)


async def test_a_certificate_for_another_host_is_refused(server: TlsServer) -> None:
    url = full_url(server.url("127.0.0.1"), "verify-full", server.ca)
    for opening in (migrate.upgrade(url), SqlSessionStore(url).open()):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1.*store\.tls: verify-full"):
            await opening


async def test_a_server_without_tls_is_refused() -> None:
    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(8)  # the request for TLS
            connection.sendall(b"N")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql://postgres@127.0.0.1:{listener.getsockname()[1]}/postgres"
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener))
        with pytest.raises(StoreError, match=r"does not offer TLS.*store\.tls"):
            await SqlSessionStore(full_url(url, "require")).open()
        await refusing
