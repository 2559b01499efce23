"""Executors do the runs of a sweep; a word says which one.

processes        as many of this machine's processes as it has processors
processes:N      N of them; processes:1 stays in this one
dask://HOST:PORT a Dask cluster that is already there
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from dlsched.core.errors import BadInput
from simulate.sweep.run import Finished, Inputs, Run, execute

Progress = Callable[[Run, int], None]  # a run that is going on, and how many of its jobs have ended


class Executor(Protocol):
    """Does runs; a sweep knows nothing else of where they are done."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs; yields each as it finishes, in any order.

        Closing the iterator, or an exception in it (Ctrl-C), stops those that are still going.
        `on_progress` is for executors that can tell how far a run is.
        """
        ...


class InProcess:
    """The executor that does one run after the other in this process."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs in order."""
        for run in runs:
            yield run, execute(inputs, run, partial(on_progress, run))


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
