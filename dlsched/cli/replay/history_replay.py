"""`dlsched replay --from-db`: the history in a daemon's database, as a trace and a cluster."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlsched.cli.jobs.records.history_export import write_history
from dlsched.cli.output.times import moment_or_ago
from dlsched.client.job_reading import job_of
from dlsched.client.job_records import Job
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, DlschedError
from dlsched.daemon.control.views import stored_views
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.round.restore import cluster_of
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.settings import Settings
from dlsched.daemon.tenants import Tenants
from dlsched.db.reading.queries import After
from dlsched.db.store import Store

PAGE = 2000


class StoredHistory:
    """The jobs of a database as a temporary trace, and its nodes.

    Attributes:
        trace: path of a native trace; `close` removes it.
        left_out: what the trace does not say, in words; empty where it says all.
        cluster: the registered nodes; None if there are none.
    """

    def __init__(self, folder: tempfile.TemporaryDirectory[str], cluster: Cluster | None) -> None:
        self._folder = folder
        self.trace = str(Path(folder.name) / "history.csv")
        self.cluster = cluster
        self.left_out = ""

    def close(self) -> None:
        """Remove the trace."""
        self._folder.cleanup()


def open_history(url: str, since: str | None) -> StoredHistory:
    """Read the jobs that have ended, from `since` on.

    Raises:
        BadInput: no such database, or no job in it has run on a GPU.
        DlschedError: the database cannot be read.
    """
    start = None if since is None else moment_or_ago("--since", since)
    file = url.removeprefix("sqlite:///")
    if file != url and not os.path.isfile(file):
        raise BadInput(f"--from-db {url}: no such file")
    with Store.open(url, check=False) as store:
        jobs = list(_ended_jobs(store, start))
        cluster = _cluster(store)
    folder = tempfile.TemporaryDirectory(prefix="dlsched-history-")
    history = StoredHistory(folder, cluster)
    try:
        history.left_out = write_history(jobs, history.trace).left_out
    except DlschedError as error:
        history.close()
        raise BadInput(f"--from-db {url}: {error}") from None
    return history


def _ended_jobs(store: Store, since: float | None) -> Iterator[Job]:
    """Jobs that have ended, by their end; a page that is short need not be the last."""
    after: After | None = None
    while page := store.history(since=since, after=after, limit=PAGE):
        yield from map(job_of, stored_views(page).messages())
        after = page[-1].after


def _cluster(store: Store) -> Cluster | None:
    """Return the nodes as the daemon sees them, with accounts and priority classes."""
    loaded = store.load()
    site = Tenants.stored(loaded.tenants).site_rules(Settings())
    live = LiveState(ClusterRules(site=site)).successor(loaded, 0.0)
    return cluster_of(take_snapshot(RoundState(live), "full", 0.0))
