"""Turns on GPUs that several jobs share: a step begins when the node's agent says so.

The keeper passes the request on. When there is no keeper any more, or the job has its GPUs alone,
steps begin at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dlsched.job import messages as words
from dlsched.job.errors import JobError
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.step_memory import StepMemory, step_memory

LOOK_S = 1.0  # between two looks for a signal while a rank waits
PATIENT_S = 5.0  # a rank that waits longer says so, and does not seem to hang


class Turns:
    """The turns of one rank.

    Attributes:
        is_on: whether this job shares its GPUs, so that it takes turns.
    """

    def __init__(self, link: KeeperLink, *, is_on: bool) -> None:
        """Ask over this connection."""
        self.is_on = is_on
        self._link = link
        self._memory: StepMemory | None = None
        self._turn: words.Turn | None = None
        self._most: int | None = None  # bytes that it allows
        self._runs = False
        self._since = 0.0  # when the present turn began, on the monotonic clock
        self._ran_s = 0.0  # seconds of all turns, without the waits
        self._ended = 0  # how many they were

    def given(self, turn: words.Turn) -> None:
        """Take the keeper's answer."""
        self._turn, self._most = turn, turn.memory_bytes

    def begin(self, take_messages: Callable[[], None], steps_left: int | None) -> None:
        """Wait until this rank may begin its next step.

        Args:
            take_messages: takes what the keeper has sent.
            steps_left: steps that the training still needs, if it knows.

        Raises:
            JobError: when the step before has not ended.
        """
        if self._runs:
            raise JobError("step_begin: the step before has not ended; call step_end after it")
        self._runs = True
        if not self.is_on or not self._link.is_open:
            return
        self._memory = step_memory()  # anew: the first step may be what uses the GPU first
        self._turn = self._most = None
        left_s = None
        if steps_left is not None and self._ended:
            left_s = steps_left * self._ran_s / self._ended
        request = words.StepBegin(held_bytes=self._memory.held(), left_s=left_s)
        self._link.send(request, must_arrive=True)
        since, told = time.monotonic(), False
        while self._waits:
            if not told and time.monotonic() - since > PATIENT_S:
                told = True
                self._link.send(words.Doing(what="turn"), must_arrive=True)
            self._link.wait(LOOK_S)
            take_messages()
        if told:
            self._link.send(words.Doing(what=""), must_arrive=True)
        self._memory.begin(self._most)
        self._since = time.monotonic()

    @property
    def _waits(self) -> bool:
        return self._turn is None and self._link.is_open

    def end(self) -> None:
        """Say that the step has ended, and what memory it used.

        Raises:
            JobError: when no step has begun.
        """
        if not self._runs:
            raise JobError("step_end: no step has begun; call step_begin before it")
        self._runs = False
        if self._memory is None or not self._link.is_open:
            return
        turn, self._turn = self._turn, None
        self._ran_s += time.monotonic() - self._since
        self._ended += 1
        held, most = self._memory.end(give_back=turn is not None and turn.shared)
        self._link.send(words.StepEnd(held_bytes=held, most_bytes=most), must_arrive=True)
