"""Memory of a daemon that holds a million live objects: how it is searched and given back.

A full search for unreachable objects looks at every object: 0.2 s of a still event loop with
20,000 jobs in memory. The ledger's objects live long and are freed by their reference counts, so
they are taken out of the search soon after they were made. Objects that refer to each other and
that no object outside refers to are found only while they are young: the daemon makes them in
calls, not in its state.
"""

from __future__ import annotations

import ctypes
import gc
from typing import ClassVar

_NEVER = 1_000_000_000
_M_ARENA_MAX = -8  # of glibc's malloc.h
SOME = 10  # searches of the young since the last full one: at most some 70,000 new objects
MANY = 50  # as many come with a large submission, and nearly all of those stay


class LongLivedObjects:
    """Takes what has grown old out of the search; `settle` is called now and then.

    The search is the process's: with several daemons in one (tests), the last end restores it.
    """

    _before: ClassVar[tuple[int, int, int]]
    _holders: ClassVar[int] = 0

    def __init__(self) -> None:
        """Let no full search start by itself, and take what the process has at its start out."""
        if LongLivedObjects._holders == 0:
            LongLivedObjects._before = gc.get_threshold()
        LongLivedObjects._holders += 1
        self._has_searched = False  # since memory was given back
        gc.freeze()  # else the first `settle` searches all modules, while the loop waits
        gc.set_threshold(*self._before[:2], _NEVER)

    def settle(self) -> None:
        """Search what has grown old since the last time, and take what is left out for good.

        Once little is new after much was, memory is given back.
        """
        searches = gc.get_count()[2]
        if searches < SOME:
            if self._has_searched:
                self._has_searched = False
                give_back_memory()
            return
        self._has_searched = True
        if searches < MANY:
            gc.collect()
        gc.freeze()
        gc.collect()  # of nearly nothing: it counts anew

    def close(self) -> None:
        """Search as before, once no other daemon of this process needs it otherwise."""
        LongLivedObjects._holders -= 1
        if LongLivedObjects._holders == 0:
            gc.set_threshold(*self._before)
            gc.unfreeze()


def give_back_memory() -> None:
    """Return to the system what a large request has needed for a moment: 24 MB of 10,000 jobs."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def share_one_heap() -> None:
    """Let all threads allocate from one heap: of the usual ones for each, much stays half empty.

    That was 10 MB with 10,000 jobs in memory. Threads hardly wait for each other there, since
    Python's threads execute by turns.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
