"""Clusters of real processes, on SQLite and on Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.live.witnessed import Witnessed
from tests.postgres import PostgresCluster, postgres_cluster

__all__ = ["DATABASES", "SELDOM_POSTGRES", "database_of", "postgres_cluster"]


DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
# of tests that take long and leave little to the database
SELDOM_POSTGRES = ["sqlite", pytest.param("postgres", marks=pytest.mark.exhaustive)]


def database_of(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database; empty: a file of the cluster's own."""
    if request.param == "sqlite":
        return ""
    server: PostgresCluster = request.getfixturevalue("postgres_cluster")
    url = server.make()
    request.addfinalizer(lambda: server.drop(url))
    return url


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def shared(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One daemon and three agents of four GPUs, for tests that leave them as they were."""
    with LocalCluster(database_of(request)) as running:
        yield running


@pytest.fixture(params=DATABASES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One daemon and two agents of four GPUs."""
    with LocalCluster(database_of(request), nodes=2) as running:
        yield running


@pytest.fixture
def small() -> Iterator[LocalCluster]:
    """One daemon and two agents on SQLite, for what no database has a say in."""
    with LocalCluster(nodes=2) as running:
        yield running


@pytest.fixture
def witnessed(cluster: LocalCluster) -> Iterator[Witnessed]:
    """Jobs of `cluster` that are watched; at the end everything is checked once more."""
    made = Witnessed(cluster)
    yield made
    made.check()


@pytest.fixture
def seen(small: LocalCluster) -> Iterator[Witnessed]:
    """As `witnessed`, of `small`."""
    made = Witnessed(small)
    yield made
    made.check()
