"""Stores on SQLite and on a real Postgres, through one parametrised fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.db.store import Store
from dlsched.protocol.messages import Epoch
from tests.postgres import postgres_cluster, postgres_url

__all__ = ["postgres_cluster", "postgres_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store with its tables."""
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def epoch(store: Store) -> Epoch:
    """The term that the store leads in."""
    term = store.contend("daemon-1")
    assert term is not None
    return term.epoch
