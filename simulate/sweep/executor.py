"""Where runs are done, chosen by a word.

processes        as many of this machine's processes as it has processors
processes:N      N of them; processes:1 stays in this one
dask://HOST:PORT a Dask cluster that is already there
"""

from __future__ import annotations

import os

from dlsched.core.errors import BadInput
from simulate.sweep.interface import Executor, InProcess


def executor_of(text: str, *, runs: int) -> Executor:
    """The executor that a word names ("": processes); a single run stays in this process.

    Raises:
        BadInput: another word, or no number of processes.
    """
    word, colon, rest = text.partition(":")
    if word == "dask" and rest.startswith("//"):
        from simulate.sweep.dask_cluster import DaskCluster  # noqa: PLC0415 - an extra

        return DaskCluster(rest.removeprefix("//"))
    if word not in ("", "processes") or (colon and not (rest.isdigit() and int(rest) > 0)):
        raise BadInput(
            f"--executor {text!r} is not known; known: processes, processes:N, dask://HOST:PORT"
        )
    workers = min(int(rest) if rest else len(os.sched_getaffinity(0)), runs)
    if workers <= 1:
        return InProcess()
    from simulate.sweep.processes import Processes  # noqa: PLC0415

    return Processes(workers)
