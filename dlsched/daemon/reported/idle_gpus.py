"""For how long the GPUs of running jobs have done next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlsched.protocol.messages import JobId, RunId


class IdleRule(Protocol):
    """When GPUs count as idle.

    Attributes:
        below: a utilisation, 0 to 1.
        after_s: how long it must stay below that.
    """

    @property
    def below(self) -> float:
        """See the class."""

    @property
    def after_s(self) -> float:
        """See the class."""


@dataclass(slots=True)
class _Idle:
    run: RunId
    seconds: float = 0.0
    told: bool = False


class IdleGpus:
    """The jobs whose GPUs are idle now."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, _Idle] = {}

    def note(self, job: JobId, run: RunId, use: float, passed_s: float, rule: IdleRule) -> bool:
        """Note how busy the GPUs of a job are.

        Args:
            job: the job.
            run: its present run; another one begins anew.
            use: the mean utilisation of its GPUs, 0 to 1.
            passed_s: seconds since they were looked at before.
            rule: of the site.

        Returns:
            whether they have become idle by the rule, once in a stretch of idleness.
        """
        if use >= rule.below:
            self._jobs.pop(job, None)
            return False
        mine = self._jobs.get(job)
        if mine is None or mine.run != run:
            mine = self._jobs[job] = _Idle(run)
        mine.seconds += passed_s
        if mine.told or mine.seconds < rule.after_s:
            return False
        mine.told = True
        return True

    def keep(self, running: set[JobId]) -> None:
        """Forget jobs that do not run any more."""
        self._jobs = {job: idle for job, idle in self._jobs.items() if job in running}

    def idle_s(self, job: JobId) -> float:
        """For how many seconds a job's GPUs have been idle; 0: they are not."""
        mine = self._jobs.get(job)
        return 0.0 if mine is None else mine.seconds

    def jobs(self, rule: IdleRule) -> list[JobId]:
        """The jobs whose GPUs are idle by a rule."""
        return [job for job, idle in self._jobs.items() if idle.seconds >= rule.after_s]
