"""A cluster of this machine's own for a torture test, and the faults that it can be given."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dlsched.torture.faults import Faults, LocalFaults, faults_of
from dlsched.torture.local_cluster import LocalCluster
from dlsched.torture.postgres import OwnPostgres
from dlsched.torture.relay import Relay

OWN_POSTGRES = "postgres"
DISK_BYTES = 48 * 1024**2
LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWish:
    """What cluster is wanted.

    Attributes:
        database: empty for a file of SQLite; `postgres` for a server of its own; or a URL.
        nodes: how many agents.
        gpus: pretended ones, of each node.
        pause_s: how long processes stand still and links are cut.
        without: faults that are not wanted.
    """

    database: str
    nodes: int
    gpus: int
    pause_s: float
    without: frozenset[str] = frozenset()


@contextlib.contextmanager
def local_cluster(wish: LocalWish) -> Iterator[tuple[LocalCluster, Faults]]:
    """A running cluster and its faults; it leaves nothing behind.

    Raises:
        BadInput: there is no server for the database that is wanted.
    """
    left_out: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        server = None
        url = wish.database
        if url == OWN_POSTGRES:
            server = stack.enter_context(OwnPostgres())
            url = server.url
        elif url:
            left_out["database-away"] = "the server is yours; --database postgres starts one"
        # keepers are killed on purpose, and no operator is there to resume a node
        never = {"faults": {"failed_starts": 0}}
        cluster = LocalCluster(url, nodes=wish.nodes, gpus=f"{wish.gpus}:v100", tables=never)
        cluster.folder.chmod(0o755)  # users of jobs write below it
        stack.callback(cluster.__exit__, None, None, None)
        disk = _small_disk(stack, cluster, left_out)
        clock = None
        if server is not None or wish.database:
            left_out["clock-step"] = "under libfaketime the client library of Postgres spins"
        elif "clock-step" not in wish.without:  # its library slows the daemon
            clock = _clock_of(cluster, left_out)
        if os.geteuid() != 0:
            why = "without root a job may outlive its keeper unseen, until an operator looks"
            left_out["keeper-killed"] = why
        links = {name: stack.enter_context(Relay(cluster.port)) for name in cluster.names}
        cluster.reached_at.update({name: link.port for name, link in links.items()})
        cluster.__enter__()
        here = LocalFaults(
            cluster=cluster,
            links=links,
            pause_s=wish.pause_s,
            disk=disk,
            clock=clock,
            restart_database=server.crash if server is not None else None,
        )
        yield cluster, faults_of(here, left_out)


def _small_disk(
    stack: contextlib.ExitStack, cluster: LocalCluster, left_out: dict[str, str]
) -> Path | None:
    """A file system of its own for the database, or for a node's state if there is a server."""
    is_file = cluster.database.startswith("sqlite:")
    place = cluster.folder / "disk" if is_file else cluster.folder / "n1" / "state"
    place.mkdir(parents=True, mode=0o700)
    options = f"size={DISK_BYTES},mode=0700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "dlsched-torture", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()
        left_out["disk-full"] = (
            f"no file system can be mounted: {why[-1] if why else 'not allowed'}"
        )
        return None
    stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    if is_file:
        cluster.database = f"sqlite:///{place}/dlsched.db"
        cluster.sections["daemon"]["database"] = cluster.database
    return place


def _clock_of(cluster: LocalCluster, left_out: dict[str, str]) -> Path | None:
    """The file that says how far the daemon's wall clock is off, if a library can do that."""
    found = sorted(path for pattern in LIBRARIES for path in Path("/").glob(pattern.lstrip("/")))
    if not found:
        left_out["clock-step"] = "libfaketime is not installed (apt-get install libfaketime)"
        return None
    clock = cluster.folder / "clock"
    clock.write_text("+0\n")
    cluster.daemon_environment.update(
        LD_PRELOAD=str(found[0]),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        FAKETIME_CACHE_DURATION="1",  # seconds between two looks at the file: each costs
    )
    return clock
