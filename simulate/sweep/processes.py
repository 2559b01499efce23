"""Runs on processes of this machine.

Workers are spawned, not forked: a fork of a process with threads may hang. They get the inputs
once, when they start; a worker ends itself when its parent has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

from simulate.results.tables import ReplayResult
from simulate.sweep.interface import Progress
from simulate.sweep.run import Failed, Finished, Inputs, Run, execute

LOOK_S = 0.1
Counts = Any  # a shared array of whole numbers
Job = Future[ReplayResult | Failed]
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
        ended = RawArray("q", len(runs))
        pool = ProcessPoolExecutor(
            min(self.workers, len(runs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(inputs, ended),
        )
        far = _Far(runs, ended, on_progress)
        orderly = False
        try:
            with _interrupts_held_back():  # workers are started here, and inherit it for good
                waiting = {pool.submit(_execute, run, place): run for place, run in enumerate(runs)}
            for future in far.told_until_completed(waiting):
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


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Leave Ctrl-C to this process: those started now never see it, not even while they start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Far:
    """How far the runs are: workers count in shared memory, and the parent looks now and then."""

    def __init__(self, runs: Sequence[Run], ended: Counts, on_progress: Progress) -> None:
        self._runs, self._ended, self._on_progress = runs, ended, on_progress
        self._told = [0] * len(runs)

    def told_until_completed(self, waiting: Mapping[Job, Run]) -> Iterator[Job]:
        """Yield each future when it is done; meanwhile, tell what has changed."""
        left = set(waiting)
        while left:
            done, left = wait(left, LOOK_S, FIRST_COMPLETED)
            for place, count in enumerate(self._ended):
                if count != self._told[place]:
                    self._told[place] = count
                    self._on_progress(self._runs[place], count)
            yield from done


_inputs: Inputs | None = None  # of this worker; set once by `_begin`
_ended: Counts  # by run, how many of its jobs have ended; shared with the parent


def _begin(inputs: Inputs, ended: Counts) -> None:
    """Prepare a worker: keep the inputs, and do not outlive the parent."""
    global _inputs, _ended
    _inputs, _ended = inputs, ended
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _execute(run: Run, place: int) -> ReplayResult | Failed:
    assert _inputs is not None, "the initializer has run"
    return execute(_inputs, run, partial(_ended.__setitem__, place))
