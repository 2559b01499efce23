"""Which processes of a job get a signal.

A process that handles a signal answers for what it has started: a training ends its own
data-loading workers, torchrun passes SIGTERM on to its ranks. So a signal goes down the tree of
processes to the first that handles it. Shells are passed: their traps run only after the command
that they wait for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from dlsched.nodeagent.host.processes import Stat, catches, start_of_stack

ENDING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
FOR_ALL = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})
SHELLS = frozenset(
    {"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "sh", "tcsh", "zsh"}
)


class Tree:
    """The processes of a job at one moment."""

    def __init__(self, members: Collection[Stat]) -> None:
        """Take all processes of the job."""
        self._members = {each.pid: each for each in members}
        self._children: dict[int, list[Stat]] = {}
        for each in members:
            self._children.setdefault(each.parent, []).append(each)

    def all(self, below: Collection[int] | None) -> list[Stat]:
        """Return some processes and all that they have started; `below` is None: all of the job."""
        if below is None:
            return [*self._members.values()]
        found = [self._members[pid] for pid in below if pid in self._members]
        for process in found:  # it grows meanwhile
            found += self._children.get(process.pid, ())
        return found

    def recipients(
        self, number: int, below: Collection[int] | None, not_to: Collection[int]
    ) -> list[tuple[Stat, bool]]:
        """Return the processes that get a signal, and whether each handles it; parents come first.

        What a handling process has started gets no signal that asks to end, and none of the others
        if it is a copy of that process, with its handlers: a data-loading worker that was forked.

        Args:
            number: of the signal.
            below: only these and what they have started; None: all.
            not_to: these get none.
        """
        if number in FOR_ALL:
            return [(each, False) for each in self.all(below) if each.pid not in not_to]
        waiting = [each for each in self._members.values() if each.parent not in self._members]
        if below is not None:
            waiting = [self._members[pid] for pid in below if pid in self._members]
        found: list[tuple[Stat, bool]] = []
        for process in waiting:  # it grows meanwhile
            handles = catches(process.pid, number)
            if process.pid not in not_to:
                found.append((process, handles))
            started = self._children.get(process.pid, [])
            if handles and not _is_shell(process.pid):
                stack = start_of_stack(process.pid)
                started = [
                    each
                    for each in started
                    if number not in ENDING and start_of_stack(each.pid) != stack
                ]
            waiting += started
        return found


def _is_shell(pid: int) -> bool:
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return os.path.basename(program) in SHELLS
