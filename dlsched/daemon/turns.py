"""Turns on the event loop: long work over jobs in memory lets others go in between.

Only the loop's thread may change what is in memory, so such work is not moved to another thread.
Between two turns jobs may change or leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import thread_time
from typing import TypeVar

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
