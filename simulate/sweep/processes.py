"""Runs on processes of this machine.

Workers are spawned, not forked: a fork of a process with threads may hang. They get the inputs
once, when they start; a worker ends itself when its parent has ended. Each computes with one
thread, since there are as many workers as processors.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

from dlsched.policies.blas import one_thread
from simulate.results.tables import ReplayResult
from simulate.sweep.executor import Progress
from simulate.sweep.order import LongestFirst
from simulate.sweep.run import Failed, Finished, Inputs, Run, execute

LOOK_S = 0.1
Counts = Any  # a shared array of whole numbers
Ended = tuple[ReplayResult | Failed, float]  # how a run ended, and its seconds
Job = Future[Ended]
_DIED = "its process was killed, perhaps for want of memory; try --executor processes:1"


class Processes:
    """The default executor of a sweep."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs, as many at a time as there are workers, the longest first.

        One more is in the queue, so that no worker has to wait. A worker that dies takes the whole
        pool with it: the runs not done by then have failed.
        """
        ended = RawArray("q", len(runs))
        pool = ProcessPoolExecutor(
            min(self.workers, len(runs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(inputs, ended),
        )
        far = _Far(runs, ended, on_progress)
        places = {run.number: place for place, run in enumerate(runs)}
        left, waiting = LongestFirst(inputs, runs), dict[Job, Run]()

        def begin_more() -> None:
            with _interrupts_held_back(), one_thread():  # workers start here, and inherit both
                while left and len(waiting) <= self.workers:
                    run = left.take()
                    waiting[_submitted(pool, run, places[run.number])] = run

        orderly = False
        try:
            begin_more()
            while waiting:
                for future in far.told_until_some_end(waiting):
                    run = waiting.pop(future)  # so that the result can be freed once handed over
                    try:
                        result, seconds = future.result()
                        left.took(run, seconds)
                    except BrokenProcessPool:
                        result = Failed(message=_DIED)
                    begin_more()
                    yield run, result
            orderly = True
        finally:
            if not orderly:
                for worker in multiprocessing.active_children():
                    worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, run: Run, place: int) -> Job:
    """A run for the pool; where the pool is broken, one that has failed so."""
    try:
        return pool.submit(_execute, run, place)
    except BrokenProcessPool as error:
        lost: Job = Future()
        lost.set_exception(error)
        return lost


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
        self._reported = [0] * len(runs)

    def told_until_some_end(self, waiting: Collection[Job]) -> Collection[Job]:
        """Those that are done, once there are any; meanwhile, tell what has changed."""
        done: Collection[Job] = ()
        while not done:
            done = wait(waiting, LOOK_S, FIRST_COMPLETED).done
            for place, count in enumerate(self._ended):
                if count != self._reported[place]:
                    self._reported[place] = count
                    self._on_progress(self._runs[place], count)
        return done


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


def _execute(run: Run, place: int) -> Ended:
    assert _inputs is not None, "the initializer has run"
    begun = time.monotonic()
    result = execute(_inputs, run, partial(_ended.__setitem__, place))
    return result, time.monotonic() - begun
