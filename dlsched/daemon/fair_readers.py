"""Threads that read the store, which users have in turn.

A user, or a node, has at most half of them at a time, so that neither many calls of one user nor
long reads keep the others from theirs. What the daemon reads for itself has no such bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
THREADS = 4
OF_ONE = 2  # threads of one user


class _Asked(NamedTuple):
    """A read that waits for a thread."""

    call: Callable[[], Any]
    answer: asyncio.Future[Any]


class FairReaders:
    """Reads of the store, each in a thread; only the event loop's thread calls the methods."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dlsched-reader")
        self._free = THREADS
        self._waiting: dict[str, deque[_Asked]] = {}  # by user; the next one's turn first
        self._reading: Counter[str] = Counter()  # of each user

    async def read(self, call: Callable[[], T], user: str) -> T:
        """Read in a thread when it is the user's turn.

        Args:
            call: the read.
            user: or node that causes it; empty: the daemon itself.
        """
        asked = _Asked(call, self._loop.create_future())
        self._waiting.setdefault(user, deque()).append(asked)
        self._begin()
        found: T = await asked.answer
        return found

    def close(self) -> None:
        """End when the present reads are over; the others get no answer."""
        for some in self._waiting.values():
            for asked in some:
                asked.answer.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=True)

    def _begin(self) -> None:
        """Begin reads while a thread is free, one of each user in turn."""
        while self._free and (user := self._next()) is not None:
            waiting = self._waiting.pop(user)
            asked = waiting.popleft()
            if waiting:
                self._waiting[user] = waiting  # it goes last
            if asked.answer.cancelled():
                continue
            self._free -= 1
            self._reading[user] += 1
            begun = self._loop.run_in_executor(self._threads, asked.call)
            begun.add_done_callback(lambda done, u=user, a=asked: self._ended(u, a, done))  # type: ignore[misc]

    def _next(self) -> str | None:
        """The user whose turn it is; None: no read may begin."""
        may = (user for user in self._waiting if not user or self._reading[user] < OF_ONE)
        return next(may, None)

    def _ended(self, user: str, asked: _Asked, done: asyncio.Future[object]) -> None:
        self._free += 1
        self._reading -= Counter({user: 1})  # without those that have none
        if done.cancelled():
            asked.answer.cancel()
        elif not asked.answer.done():
            error = done.exception()
            if error is not None:
                asked.answer.set_exception(error)
            else:
                asked.answer.set_result(done.result())
        self._begin()
