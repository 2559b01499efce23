"""One queue of requests, and the slots of replicas that take them.

A request waits until a slot is free: late binding, so none waits behind another one at a busy
replica while a second replica is idle. Of several idle replicas the one with the fewest requests
gets it, of these the one with the lowest number. A request whose replica dies goes to another one.
A replica that says that it leaves gets no request more, and its answers are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from dlsched.service.frames import LEAVES, read_frame, write_frame
from dlsched.service.http_server import Declined

MOST_TRIES = 3  # replicas that may die over one request
LONGEST_S = 600.0  # that a replica works on one request


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that has no answer yet."""

    data: bytes
    answer: asyncio.Future[bytes]
    tries: int = 0


@dataclass(slots=True, eq=False)
class Slot:
    """A connection to a replica, which works on one request at a time."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    taken: asyncio.Future[Waiting] | None = None  # while it is idle


@dataclass(slots=True, kw_only=True)
class RequestQueue:
    """The queue and the slots.

    Attributes:
        most: requests that may wait.
        longest_s: that one may wait.
        usable: the numbers of the replicas that may be used.
        used: is called with the number of a replica that gets a request.
        served: is called with the seconds that a replica worked on one.
    """

    most: int
    longest_s: float
    usable: Callable[[], Collection[int]]
    used: Callable[[int], None]
    served: Callable[[float], None]
    _queue: deque[Waiting] = field(default_factory=deque)
    _idle: list[Slot] = field(default_factory=list)
    _busy: dict[int, int] = field(default_factory=dict)  # requests by replica

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def idle(self) -> int:
        """How many slots could take a request."""
        return len(self._idle)

    async def ask(self, data: bytes) -> bytes:
        """The answer of a replica to a request.

        Raises:
            Declined: too many wait, none was free in time, or replicas died over it.
        """
        if len(self._queue) >= self.most:
            raise Declined(HTTPStatus.SERVICE_UNAVAILABLE, f"{self.most} requests wait already")
        request = Waiting(data, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self.match()
        try:
            async with asyncio.timeout(self.longest_s):
                return await request.answer
        except TimeoutError:
            raise Declined(
                HTTPStatus.GATEWAY_TIMEOUT, f"no answer within {self.longest_s:g} s"
            ) from None
        finally:
            request.answer.cancel()
            if request in self._queue:
                self._queue.remove(request)

    def match(self) -> None:
        """Give waiting requests to idle slots."""
        allowed = self.usable() if self._queue and self._idle else ()
        while self._queue and self._idle:
            slots = [slot for slot in self._idle if slot.number in allowed]
            if not slots:
                return
            slot = min(slots, key=lambda slot: (self._busy.get(slot.number, 0), slot.number))
            request = self._queue.popleft()
            self._idle.remove(slot)
            self._busy[slot.number] = self._busy.get(slot.number, 0) + 1
            self.used(slot.number)
            assert slot.taken is not None
            slot.taken.set_result(request)

    async def serve(self, slot: Slot) -> None:
        """Work with one slot until its replica is gone."""
        loop = asyncio.get_running_loop()
        while True:
            slot.taken = loop.create_future()
            self._idle.append(slot)
            self.match()
            # an idle replica says nothing: bytes, or the end, mean that it leaves or is gone
            gone = asyncio.ensure_future(slot.reader.read(1))
            first: tuple[asyncio.Future[Any], ...] = (slot.taken, gone)
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self._leave(slot)
                return
            gone.cancel()
            await asyncio.wait({gone})
            request = slot.taken.result()
            slot.taken = None
            try:
                leaves = await self._work(slot, request)
            except (ConnectionError, TimeoutError):
                request.tries += 1
                self._again(request)
                return
            finally:
                self._busy[slot.number] -= 1
            if leaves:
                return

    async def _work(self, slot: Slot, request: Waiting) -> bool:
        """Get the answer to a request; returns whether the replica has said that it leaves."""
        began, leaves = time.monotonic(), False
        async with asyncio.timeout(LONGEST_S):
            await write_frame(slot.writer, request.data)
            while (answer := await read_frame(slot.reader)) == LEAVES:
                leaves = True
        self.served(time.monotonic() - began)
        if not request.answer.done():
            request.answer.set_result(answer)
        return leaves

    def _leave(self, slot: Slot) -> None:
        """An idle slot is gone; a request that it was given in the same moment is not lost."""
        if slot in self._idle:
            self._idle.remove(slot)
        elif slot.taken is not None and slot.taken.done():
            self._busy[slot.number] -= 1
            self._again(slot.taken.result())

    def _again(self, request: Waiting) -> None:
        if request.answer.done():
            return
        if request.tries >= MOST_TRIES:
            why = f"{MOST_TRIES} replicas ended while they worked on it"
            request.answer.set_exception(Declined(HTTPStatus.BAD_GATEWAY, why))
            return
        self._queue.appendleft(request)
        self.match()
