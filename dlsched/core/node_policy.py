"""The stage below the round: a node policy divides GPUs among the jobs on them, at any moment.

A round says which jobs share a GPU. What each of them may use of it in the next second is decided
where the job runs, from what was measured there. A node policy is a pure step, one state a GPU:

    step(state, event) -> state, limits, wake_at

An agent calls it with what its jobs report and carries the limits to them; a replay calls the same
code with what its model of interference says. It reads no clock: every event has its time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from dlsched.core.stage import O, Stage

S = TypeVar("S")  # the policy's state of one GPU: a frozen dataclass of plain values

FULL = 100  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A job on a GPU, as a node policy sees it.

    Attributes:
        job: its number.
        guaranteed: the GPU is its own; other jobs use what it leaves.
        share: percent at which it runs until it gets a limit.
        can_throttle: it obeys any share; else it only runs at `share` or stands still.
    """

    job: int
    guaranteed: bool = True
    share: int = FULL
    can_throttle: bool = True


# -- events: what happens on one GPU; `now` in seconds, on a clock that never goes back ------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A job has come to the GPU."""

    now: float
    resident: Resident


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A job has left the GPU."""

    now: float
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A job has done mini-batches since it last said so.

    Attributes:
        now: seconds.
        job: which.
        duration_s: of one of them, the mean.
        steps: how many.
        memory_bytes: the most GPU memory that it has held at once; None: not known.
        spilled_bytes: of its memory, what lies in the host's memory for want of room.
    """

    now: float
    job: int
    duration_s: float
    steps: int = 1
    memory_bytes: int | None = None
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRead:
    """The memory of the GPU was read."""

    now: float
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Woke:
    """The time that the policy asked for has come."""

    now: float


Event = Came | Left | Stepped | MemoryRead | Woke


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a job may use of a GPU from now on.

    Attributes:
        share: percent of the time in which it may compute, 0 to 100; 0: it does no step.
        memory_bytes: of GPU memory at most; None: no limit.
        leaves: it must give its GPU memory back: save, and go back to the queue.
    """

    share: int = FULL
    memory_bytes: int | None = None
    leaves: bool = False


NO_LIMIT = Limit()


class Outcome(NamedTuple, Generic[S]):
    """What a step comes to: the next state, and when to wake the policy (inf: never)."""

    state: S
    limits: Mapping[int, Limit]  # of every job on the GPU, by number
    wake_at: float = math.inf


class NodePolicy(Stage[O], ABC, Generic[O, S]):
    """Divides one GPU among its jobs.

    Attributes:
        State: the class of its states; an agent keeps them on disk as JSON.
    """

    State: ClassVar[type[Any]]

    @property
    def settles_after(self) -> int | None:
        """Looks with equal measurements and unchanged limits, after which none will change.

        A replay wakes it no more then, until something happens. None: it must always be woken.
        """
        return None

    @abstractmethod
    def begin(self) -> S:
        """The state of a GPU without jobs."""

    @abstractmethod
    def step(self, state: S, event: Event) -> Outcome[S]:
        """Take an event; changes nothing but what it returns.

        An event of a job that the state does not know is passed over: reports may come late.
        """


def least(limits: Iterable[Limit]) -> Limit:
    """What a job with several GPUs may use: the same share on all, the least of their limits."""
    share, memory, leaves = FULL, math.inf, False
    for limit in limits:
        share = min(share, limit.share)
        memory = min(memory, math.inf if limit.memory_bytes is None else limit.memory_bytes)
        leaves = leaves or limit.leaves
    bound = None if memory == math.inf else int(memory)
    return Limit(share=share, memory_bytes=bound, leaves=leaves)


@dataclass(slots=True)
class DividedGpus(Generic[S]):
    """The GPUs of a node, or of a simulated cluster, under one node policy.

    Attributes:
        policy: divides each of them.
        states: by GPU; one without jobs has none.
        wake_at: when each GPU's policy is to be woken, seconds; inf: never.
    """

    policy: NodePolicy[Any, S]
    states: dict[Hashable, S] = field(default_factory=dict)
    wake_at: dict[Hashable, float] = field(default_factory=dict)
    _limits: dict[Hashable, dict[int, Limit]] = field(default_factory=dict)
    _gpus: dict[int, tuple[Hashable, ...]] = field(default_factory=dict)  # of each job

    @property
    def next_wake(self) -> float:
        """When the first of them is to be woken; inf: none is."""
        return min(self.wake_at.values(), default=math.inf)

    @property
    def jobs(self) -> Iterable[int]:
        """The jobs on them."""
        return self._gpus.keys()

    def gpus_of(self, job: int) -> tuple[Hashable, ...]:
        """The GPUs that a job has here; none: it is not here."""
        return self._gpus.get(job, ())

    def come(self, now: float, resident: Resident, gpus: Iterable[Hashable]) -> dict[int, Limit]:
        """A job has come to some GPUs; returns the limits that have changed, by job."""
        self._gpus[resident.job] = here = tuple(gpus)
        return self._take_on(here, Came(now=now, resident=resident), resident.job)

    def leave(self, now: float, job: int) -> dict[int, Limit]:
        """A job has left its GPUs; returns the limits that have changed, by job."""
        here = self._gpus.get(job, ())
        changed = self._take_on(here, Left(now=now, job=job), job)
        self._gpus.pop(job, None)
        for gpu in here:
            if not any(gpu in theirs for theirs in self._gpus.values()):
                for kept in (self.states, self.wake_at, self._limits):
                    kept.pop(gpu, None)
        changed.pop(job, None)
        return changed

    def report(self, event: Stepped) -> dict[int, Limit]:
        """A job has done steps; returns the limits that have changed, by job."""
        return self._take_on(self._gpus.get(event.job, ()), event, event.job)

    def read(self, gpu: Hashable, event: MemoryRead) -> dict[int, Limit]:
        """A GPU's memory was read; returns the limits that have changed, by job."""
        return self._take_on((gpu,) if gpu in self.states else (), event)

    def wake(self, now: float) -> dict[int, Limit]:
        """Wake each policy whose time has come; returns the limits that have changed, by job."""
        due = [gpu for gpu, at in self.wake_at.items() if at <= now]
        return self._take_on(due, Woke(now=now))

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what follows; its states are those of the policy."""
        return {
            "states": dict(self.states),
            "wake_at": dict(self.wake_at),
            "limits": {gpu: dict(limits) for gpu, limits in self._limits.items()},
            "gpus": dict(self._gpus),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.states, self.wake_at = dict(state["states"]), dict(state["wake_at"])
        self._limits = {gpu: dict(limits) for gpu, limits in state["limits"].items()}
        self._gpus = dict(state["gpus"])

    def limit_of(self, job: int) -> Limit:
        """What a job may use at present."""
        return least(
            self._limits[gpu][job]
            for gpu in self._gpus.get(job, ())
            if job in self._limits.get(gpu, {})
        )

    def _take_on(
        self, gpus: Iterable[Hashable], event: Event, subject: int | None = None
    ) -> dict[int, Limit]:
        before: dict[int, Limit] = {}
        for gpu in gpus:
            for job in self._limits.get(gpu, {}):
                before.setdefault(job, self.limit_of(job))
        for gpu in gpus:
            state = self.states.get(gpu)
            outcome = self.policy.step(self.policy.begin() if state is None else state, event)
            self.states[gpu], self.wake_at[gpu] = outcome.state, outcome.wake_at
            self._limits[gpu] = dict(outcome.limits)
        concerned = {job for gpu in gpus for job in self._limits.get(gpu, {})}
        changed = {job: self.limit_of(job) for job in sorted(concerned)}
        is_new = subject if isinstance(event, Came) else None
        return {
            job: limit
            for job, limit in changed.items()
            if job == is_new or limit != before.get(job, NO_LIMIT)
        }
