"""`sdiag`: how the scheduler does, as far as the daemon counts it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dlsched.cli.slurm.arguments import Arguments
from dlsched.client.daemon_client import Client

_RULE = "*" * 55


def sdiag(words: Sequence[str]) -> int:
    """Tell of the present leader; what it does not count has no line."""
    parser = Arguments("sdiag", "How the scheduler does: jobs, and its last round.")
    parser.option("-a", "--all", flag=True)
    parser.read(words)
    with Client() as cluster:
        status = cluster.status()
    now = time.time()
    since = now - status.up_s
    print(f"{_RULE}\nsdiag output at {time.ctime(now)} ({now:.0f})")
    print(f"Data since      {time.ctime(since)} ({since:.0f})\n{_RULE}")
    print(f"Jobs pending:   {status.pending}\nJobs running:   {status.running}\n")
    print("Main schedule statistics (microseconds):")
    print(f"\tLast cycle:   {1e6 * status.round_s:.0f}\n\tTotal cycles: {status.round}")
    return 0
