"""Turns: long work on the event loop lets others go in between, and users go one after the other.

Only the loop's thread may change what is in memory, so work over jobs is not moved to another
thread. Between two turns jobs may change or leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from time import thread_time
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
TURN_S = 0.01  # CPU time after which other calls have the loop


async def in_turns(values: Iterable[T]) -> AsyncIterator[T]:
    """The same values; whenever a turn is over, others have the loop before the next one."""
    began = thread_time()
    for value in values:
        if thread_time() - began > TURN_S:
            await asyncio.sleep(0)
            began = thread_time()
        yield value


class UserTurns:
    """Work that is done one at a time: a user with many calls waits for one of each other user."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self._everyone = asyncio.Lock()
        self._own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Wait for the user's turn, and have it."""
        own = self._own.setdefault(user, asyncio.Lock())
        async with own, self._everyone:
            yield
