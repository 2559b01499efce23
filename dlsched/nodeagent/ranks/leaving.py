"""What the processes of a run have said and handed in about its end, and when they got TERM.

The verdict on the run rests on it: see `dlsched.protocol.ledger.ends`.
"""

from __future__ import annotations

from collections.abc import Collection

from dlsched.job import messages as words
from dlsched.protocol.messages import Told

WHOLE_JOB = 0  # in place of a process id: it outlives its process


class Leaving:
    """The facts about the end of one run on this node.

    Attributes:
        checkpoint: step of the newest that was handed in after a stop was asked; None: none was.
    """

    def __init__(self) -> None:
        """Start when no rank has said how it leaves."""
        self.checkpoint: int | None = None
        self._told: dict[int, Told] = {}  # by process id
        self._term_at: float | None = None

    def from_job(self, pid: int, message: words.FromJob, *, stopping: bool) -> None:
        """Take a message of a process; `stopping`: the run has been asked to stop."""
        match message:
            case words.Leaving(finished=False, handed_over=True):
                self._told[pid] = Told.HANDED_OVER
            case words.Leaving(finished=finished, job=whole):
                self._told[WHOLE_JOB if finished and whole else pid] = (
                    Told.FINISHED if finished else Told.STOPPED
                )
            case words.Hello() if self.has_finished(pid):
                del self._told[pid]  # it trains again
            case words.CheckpointMade(step=step) if stopping:
                self.checkpoint = step

    @property
    def told(self) -> Told | None:
        """The last word of all processes together; one that has stopped outweighs the others."""
        if WHOLE_JOB in self._told:
            return Told.FINISHED
        said = self._told.values()
        return Told.STOPPED if Told.STOPPED in said else next(iter(said), None)

    def has_finished(self, pid: int) -> bool:
        """Whether the training of a process is done."""
        return self._told.get(pid) is Told.FINISHED

    def term_sent(self, now: float, alive: Collection[int]) -> None:
        """Note that the processes get TERM: it may cut short what follows a finished training."""
        self._term_at = now if self._term_at is None else self._term_at
        for pid in [*self._told]:
            if pid not in (WHOLE_JOB, *alive) and self.has_finished(pid):
                del self._told[pid]

    def term_s(self, ended_at: float) -> float | None:
        """Seconds from TERM to the end of the job's processes; None: none was sent before it."""
        if self._term_at is None or ended_at < self._term_at:
            return None
        return ended_at - self._term_at
