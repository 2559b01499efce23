"""Runs on processes of this machine.

Workers are spawned, not forked: a fork of a process with threads may hang. They get the inputs
once, when they start; a worker ends itself when its parent has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from simulate.results.tables import ReplayResult
from simulate.sweep.interface import Progress
from simulate.sweep.run import Failed, Finished, Inputs, Run, execute

_DIED = "its process was killed, perhaps for want of memory; try --executor processes:1"


class Processes:
    """The default executor of a sweep."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs, as many at a time as there are workers.

        A worker that dies takes the whole pool with it: the runs not done by then have failed.
        """
        pool = ProcessPoolExecutor(
            min(self.workers, len(runs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(inputs,),
        )
        orderly = False
        try:
            waiting = {pool.submit(_execute, run): run for run in runs}
            for future in as_completed(waiting):
                run = waiting.pop(future)  # so that the result can be freed once it is handed over
                try:
                    result = future.result()
                except BrokenProcessPool:
                    result = Failed(message=_DIED)
                yield run, result
            orderly = True
        finally:
            if not orderly:
                for worker in multiprocessing.active_children():
                    worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


_inputs: Inputs | None = None  # of this worker; set once by `_begin`


def _begin(inputs: Inputs) -> None:
    """Prepare a worker: keep the inputs, leave Ctrl-C to the parent, and do not outlive it."""
    global _inputs  # noqa: PLW0603 - an initializer has no other way to hand a value to the runs
    _inputs = inputs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _execute(run: Run) -> ReplayResult | Failed:
    assert _inputs is not None, "the initializer has run"
    return execute(_inputs, run)
