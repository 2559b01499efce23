"""One store that is made empty again and again, for tests that need many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dlsched.db import schema
from dlsched.db.engine import writing
from dlsched.db.store import Store
from dlsched.db.versions import begin
from tests.postgres import PostgresCluster

Emptied = Callable[[], Store]


def emptied_store(folder: Path, cluster: PostgresCluster | None) -> Iterator[Emptied]:
    """Yield what empties the store and returns it.

    Args:
        folder: of an SQLite file.
        cluster: for a Postgres database in its place.
    """
    url = cluster.make() if cluster is not None else f"sqlite:///{folder}/a.db"
    with Store.open(url) as store:

        def empty() -> Store:
            with writing(store.engine) as connection:
                for table in reversed(schema.METADATA.sorted_tables):
                    connection.execute(table.delete())
                begin(connection)
            return store

        yield empty
    if cluster is not None:
        cluster.drop(url)
