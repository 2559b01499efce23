"""The event loop of a keeper: descriptors and one timer, without threads.

A module of its own because `asyncio` would cost every keeper megabytes.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Collection, Iterable

from dlsched.nodeagent.host import syscalls

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT
Call = Callable[[int], None]


class EventLoop:
    """Calls functions when descriptors are ready; each call gets the mask of what is ready."""

    def __init__(self, on_timer: Callable[[], None]) -> None:
        """Watch nothing but the timer, which calls `on_timer`."""
        self._poll = select.epoll()
        self._calls: dict[int, tuple[Call, int]] = {}  # with the mask that is waited for
        self._timer = syscalls.make_timer()
        self._on_timer = on_timer
        self.watch(self._timer, self._timer_is_due)

    def watch(self, fd: int, call: Call) -> None:
        """Call a function whenever a descriptor is readable or its other end is closed."""
        self._poll.register(fd, READABLE)
        self._calls[fd] = (call, READABLE)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, before it is closed; one that is not watched is ignored.

        After its close the events would go on as long as another process holds a copy.
        """
        if self._calls.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(fd)

    def wait_to_write(self, fd: int, wanted: bool) -> None:
        """Call a descriptor's function also when it is writable, or no longer."""
        self.set_mask(fd, READABLE | WRITABLE if wanted else READABLE)

    def set_mask(self, fd: int, mask: int) -> None:
        """Call a descriptor's function for these events; for a closed other end always."""
        call, present = self._calls[fd]
        if present != mask:
            self._poll.modify(fd, mask)
            self._calls[fd] = (call, mask)

    def turn(self, until: float | None) -> None:
        """Wait for descriptors or a time of the node's clock, then make the calls that are due."""
        syscalls.set_timer(self._timer, until)
        self._make_calls(self._poll.poll())

    def drain(self, fds: Collection[int]) -> bool:
        """Make the calls of these descriptors that are readable now; False when there is none."""
        ready = [(fd, mask) for fd, mask in self._poll.poll(0) if fd in fds]
        readable = [(fd, mask) for fd, mask in ready if mask & ~WRITABLE]
        self._make_calls(readable)
        return bool(readable)

    def _make_calls(self, ready: Iterable[tuple[int, int]]) -> None:
        """Make the calls of descriptors that are ready, unless an earlier call ends the watch.

        The number of a descriptor that an earlier call has closed may be that of another one.
        """
        meant = [(fd, mask, self._calls[fd][0]) for fd, mask in ready if fd in self._calls]
        for fd, mask, call in meant:
            present = self._calls.get(fd)
            if present is not None and present[0] is call:
                call(mask)

    def _timer_is_due(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        self._on_timer()
