"""The name of the cluster, for listings that show it: asked once."""

from __future__ import annotations

import os
from functools import cache


@cache
def cluster_name() -> str:
    """The cluster's name; in a job, its environment says it."""
    said = os.environ.get("SLURM_CLUSTER_NAME")
    if said and "SLURM_JOB_ID" in os.environ:
        return said
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    with Client() as daemon:
        return str(daemon.status().cluster)
