"""`dlsched replay --from-db`: the history in a daemon's database, as a trace and a cluster."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from dlsched.cli.since import moment_or_ago
from dlsched.cli.trace_export import write_history
from dlsched.client.reading import job_of
from dlsched.core.cluster import Cluster
from dlsched.core.errors import BadInput, DlschedError
from dlsched.daemon.board import Board
from dlsched.daemon.control.views import stored_view
from dlsched.daemon.round.restore import cluster_of
from dlsched.daemon.round.taking import take_snapshot
from dlsched.db.store import Store

__all__ = ["StoredHistory", "open_history"]

PAGE = 2000


class StoredHistory:
    """What was read of a database: a trace file of its own, and the nodes that it knows.

    Attributes:
        trace: a native trace; it goes with `close`.
        cluster: the nodes that are registered there; None when there are none.
    """

    def __init__(self, folder: tempfile.TemporaryDirectory[str], cluster: Cluster | None) -> None:
        self._folder = folder
        self.trace = str(Path(folder.name) / "history.csv")
        self.cluster = cluster

    def close(self) -> None:
        """Drop the file."""
        self._folder.cleanup()


def open_history(url: str, since: str | None) -> StoredHistory:
    """Read what has ended.

    Raises:
        BadInput: no such database, or nothing in it has run on a GPU.
        DlschedError: it cannot be read.
    """
    start = None if since is None else moment_or_ago("--since", since)
    file = url.removeprefix("sqlite:///")
    if file != url and not os.path.isfile(file):
        raise BadInput(f"--from-db {url}: no such file")
    with Store.open(url, check=False) as store:
        jobs, after = [], None
        while True:
            page = store.history(since=start, after=after, limit=PAGE)
            jobs += [job_of(stored_view(stored)) for stored in page]
            if len(page) < PAGE:
                break
            after = page[-1].after
        cluster = _cluster(store)
    folder = tempfile.TemporaryDirectory(prefix="dlsched-history-")
    history = StoredHistory(folder, cluster)
    try:
        write_history(jobs, history.trace)
    except DlschedError as error:
        history.close()
        raise BadInput(f"--from-db {url}: {error}") from None
    return history


def _cluster(store: Any) -> Cluster | None:
    """The nodes as the daemon sees them."""
    board = Board()
    board.load(store.load(), 0.0)
    return cluster_of(take_snapshot(board, "full", 0.0))
