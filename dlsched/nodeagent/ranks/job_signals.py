"""Signals to the processes of a job: each goes to those that it is meant for, once.

The keeper of each node signals the ranks of all `dlsched run` calls there itself. So the callers of
these, which would pass a signal on, get none.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence

from dlsched.nodeagent.host import processes
from dlsched.nodeagent.host.recipients import Tree


class JobSignals:
    """Sends signals to the processes of one run on one node."""

    def __init__(
        self,
        members: Callable[[], list[processes.Stat]],
        callers: Callable[[], Collection[int]],
    ) -> None:
        """Send none yet.

        Args:
            members: gives the processes of the job.
            callers: gives the ids of those that wait for ranks that the keeper has started.
        """
        self._members, self._callers = members, callers
        # when each process has started, by its id
        self._asked: dict[int, int] = {}  # have got the runtime's TERM
        self._spared: dict[int, int] = {}  # have not: a process above them handles it

    def send(
        self,
        number: int,
        *,
        below: Collection[int] | None = None,
        or_all: bool = True,
        not_to: Collection[int] = (),
    ) -> bool:
        """Send a signal to the processes that handle it; return whether there was any.

        A shell that waits for the training script then does not die of the script's own signal.

        Args:
            number: of the signal.
            below: only these processes and what they have started; None: all.
            or_all: send it to all when none handles it.
            not_to: these get none.
        """
        not_to = {*self._callers(), *not_to}
        found = Tree(self._members()).recipients(number, below, not_to)
        handling = [each for each, handles in found if handles]
        if handling or or_all:
            processes.send(handling or [each for each, _ in found], number)
        return bool(handling)

    def ask_to_end(self, below: Collection[int] | None = None) -> None:
        """Send TERM, to no process twice.

        What a process has started that handles it gets TERM when that process has ended.
        """
        tree, callers = Tree(self._members()), self._callers()
        self._spared.update(
            (each.pid, each.start) for each in tree.all(below) if each.pid not in callers
        )
        self._ask([each for each, _ in tree.recipients(signal.SIGTERM, below, callers)])

    def child_ended(self) -> None:
        """Ask those to end whose parent handled TERM and has ended."""
        if not self._spared:
            return
        members = self._members()
        spared = (each for each in members if self._spared.get(each.pid) == each.start)
        self._spared = {each.pid: each.start for each in spared}
        found = Tree(members).recipients(signal.SIGTERM, None, self._callers())
        self._ask([each for each, _ in found if each.pid in self._spared])

    def _ask(self, targets: Sequence[processes.Stat]) -> None:
        new = [each for each in targets if self._asked.get(each.pid) != each.start]
        self._asked.update((each.pid, each.start) for each in new)
        for each in targets:
            self._spared.pop(each.pid, None)
        processes.send(new, signal.SIGTERM)
