"""How the newest runs on this node have ended, after the daemon has acknowledged it.

A daemon that works with a database restored from a backup may not know that a run has ended, and
wants it to go on. The node then tells its end again instead of starting it a second time.

    RUN/ended            a line for each run: its id, a space, its exit record; gone after a reboot
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping

from dlsched.nodeagent.json_values import dumps, loads
from dlsched.protocol.messages import ExitRecord, RunId
from dlsched.system import files

REMEMBERED = 10_000  # of the newest, at least; a line has about 600 bytes


class EndedRuns:
    """The ends of one node's runs, in a file; the places of its lines are in memory.

    The file need not survive a crash of the machine: a run of an earlier boot is never started.
    """

    def __init__(self, run_dir: str, remembered: int = REMEMBERED) -> None:
        """Name the file; it is read by `read`."""
        self._path = os.path.join(run_dir, "ended")
        self._remembered = remembered
        self._places: dict[RunId, tuple[int, int]] = {}  # first byte and length; oldest run first
        self._size = 0

    def read(self) -> None:
        """Find the lines that earlier agents of this boot have written.

        Raises:
            OSError: when the file cannot be read.
        """
        data = files.read_if_there(self._path) or b""
        self._take(data)
        if self._size < len(data):
            os.truncate(self._path, self._size)  # a line was cut short

    def __contains__(self, run_id: RunId) -> bool:
        return run_id in self._places

    def find(self, run_id: RunId) -> ExitRecord:
        """Return how a run that is known here has ended.

        Raises:
            OSError: when the file cannot be read.
            BadInput: when the line is damaged.
        """
        first, length = self._places[run_id]
        with open(self._path, "rb") as file:
            file.seek(first)
            return loads(ExitRecord, file.read(length).partition(b" ")[2])

    def add(self, ends: Mapping[RunId, ExitRecord]) -> None:
        """Write the ends of runs; called before their records are deleted.

        Raises:
            OSError: when they cannot be written; what was known is known.
        """
        new = b"".join(_line(run_id, end) for run_id, end in ends.items())
        if len(self._places) + len(ends) > 2 * self._remembered:
            data = (files.read_if_there(self._path) or b"") + new
            kept = b"".join(data.splitlines(keepends=True)[-self._remembered :])
            files.replace_file(self._path, kept, durable=False)
            self._take(kept)
            return
        with open(self._path, "ab", buffering=0) as file:
            if file.write(new) != len(new):
                file.truncate(self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._note(new.splitlines(keepends=True))

    def _take(self, data: bytes) -> None:
        self._places, self._size = {}, 0
        self._note(data.splitlines(keepends=True))

    def _note(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.endswith(b"\n"):
                run_id = RunId(line.partition(b" ")[0].decode("utf-8", "replace"))
                self._places[run_id] = (self._size, len(line))
                self._size += len(line)


def _line(run_id: RunId, end: ExitRecord) -> bytes:
    return f"{run_id} ".encode() + dumps(end) + b"\n"
