"""How a keeper learns that the lease of its node has changed.

The kernel says so as long as the keeper's user has an inotify instance left; else the keeper looks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from dlsched.nodeagent.host import syscalls
from dlsched.nodeagent.host.event_loop import EventLoop
from dlsched.nodeagent.keeper import run_files
from dlsched.system import clock

LOOKS_EVERY_S = 1.0  # at most, where the kernel does not say it; a lease is good for much longer


class LeaseWatch:
    """Calls a function after each change of the lease.

    Attributes:
        deadline: when it looks next, in seconds since the boot; None: the kernel tells.
    """

    def __init__(
        self, loop: EventLoop, run_dir: str, beat_s: float, changed: Callable[[], None]
    ) -> None:
        """Watch nothing yet.

        Args:
            loop: of the keeper.
            run_dir: the folder of the lease.
            beat_s: at most so long passes between two looks.
            changed: is called after a change.
        """
        self._loop, self._run_dir, self._changed = loop, run_dir, changed
        self._every_s = min(LOOKS_EVERY_S, beat_s)
        self._fd: int | None = None
        self._seen: tuple[int, int] | None = None
        self.deadline: float | None = None

    def begin(self) -> None:
        """Watch the folder as it is now, which may be another one than before."""
        if self._fd is not None:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
        self._fd = self.deadline = None
        try:
            fd = self._fd = syscalls.watch_folder(self._run_dir)
        except OSError:
            self.deadline = clock.boottime()
        else:
            self._loop.watch(fd, lambda _mask: self._folder_changed(fd))

    def _folder_changed(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fd, 65536)
        self._changed()

    def wake(self, now: float) -> None:
        """Look, if it is time to."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = now + self._every_s
        try:
            found = os.stat(run_files.lease_path(self._run_dir))
        except OSError:
            return
        if (found.st_ino, found.st_mtime_ns) != self._seen:
            self._seen = found.st_ino, found.st_mtime_ns
            self._changed()
