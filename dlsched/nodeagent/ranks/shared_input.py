"""One input that several ranks of a node read, each its own copy, through pipes.

What the slowest of them has not taken is kept: the caller sends no more than `INPUT_WINDOW` beyond
that. A rank that has ended, or has closed its pipe, is not waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dlsched.job.messages import INPUT_CHUNK
from dlsched.nodeagent.host.event_loop import WRITABLE

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface


class KeptBytes:
    """A part of a stream of bytes: what was added and is not forgotten yet.

    Attributes:
        first: how many bytes came before it.
    """

    def __init__(self) -> None:
        self.first = 0
        self._data = bytearray()

    @property
    def end(self) -> int:
        """How many bytes have come."""
        return self.first + len(self._data)

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data += data

    def piece(self, at: int) -> bytes:
        """Return the bytes from a place on, at most `INPUT_CHUNK`."""
        return bytes(self._data[at - self.first :][:INPUT_CHUNK])

    def forget(self, before: int) -> None:
        """Forget the bytes before a place."""
        before = min(before, self.end)
        if before > self.first:
            del self._data[: before - self.first]
            self.first = before


class SharedInput:
    """The pipes of the ranks that read, and what is on its way to them."""

    def __init__(self, keeper: KeeperInterface, on_taken: Callable[[int], None]) -> None:
        """No rank reads yet; `on_taken` is told how many bytes all readers have taken."""
        self._keeper, self._on_taken = keeper, on_taken
        self._kept = KeptBytes()
        self._is_over = False  # nothing comes after what is kept
        self._rank_of: dict[int, int] = {}  # by our end of its pipe
        self._given: dict[int, int] = {}  # bytes, by our end of the pipe

    @property
    def received(self) -> int:
        """How many bytes have come."""
        return self._kept.end

    @property
    def taken(self) -> int:
        """How many bytes all readers have taken."""
        return self._kept.first

    def open(self, rank: int) -> int:
        """Make the pipe of a rank; return the end that it reads.

        Raises:
            OSError: when no descriptor is left.
        """
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        self._rank_of[ours], self._given[ours] = rank, 0
        self._keeper.watch(ours, lambda mask: self._ready(ours, mask))
        return theirs

    def give(self, data: bytes, at: int | None = None) -> None:
        """Take the next bytes for all readers; none: their input is over.

        Args:
            data: the bytes.
            at: how many came before them. What has come already is skipped; what leaves out others
                comes again with them. None: these are the next.
        """
        if at is not None and at > self.received:
            return
        self._is_over = self._is_over or not data
        self._kept.add(data if at is None else data[self.received - at :])
        for ours in list(self._given):
            self._write(ours)
        self._note_taken()

    def leave(self, rank: int) -> None:
        """Wait no longer for a rank, which has ended."""
        for ours in [each for each, reader in self._rank_of.items() if reader == rank]:
            self._close(ours)
        self._note_taken()

    def close(self) -> None:
        """End the input of all ranks, and keep nothing."""
        for ours in list(self._given):
            self._close(ours)
        self._note_taken()

    def _ready(self, ours: int, mask: int) -> None:
        if mask & ~WRITABLE:  # nothing reads it any more
            self._close(ours)
        else:
            self._write(ours)
        self._note_taken()

    def _write(self, ours: int) -> None:
        """Give a rank as much as its pipe takes now."""
        while (given := self._given[ours]) < self.received:
            try:
                self._given[ours] += os.write(ours, self._kept.piece(given))
            except BlockingIOError:
                self._keeper.wait_to_write(ours, True)
                return
            except OSError:  # nothing reads it any more
                self._close(ours)
                return
        if self._is_over:
            self._close(ours)
        else:
            self._keeper.wait_to_write(ours, False)

    def _close(self, ours: int) -> None:
        self._keeper.unwatch(ours)
        os.close(ours)
        del self._rank_of[ours], self._given[ours]

    def _note_taken(self) -> None:
        taken = min(self._given.values(), default=self.received)
        if taken > self.taken:
            self._kept.forget(taken)
            self._on_taken(taken)
