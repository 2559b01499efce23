"""The turns of jobs on the same GPUs, as they ask for them, in lanes by their measured memory.

A job asks for each of its steps and tells at its end what memory it used. Its first step runs
alone on the GPUs, because nothing is known of its memory yet; from then on it has a lane, and steps
of different lanes run at once. A job for which there is no lane gets all its turns alone. At every
moment, with C the memory of the GPU,

    Σ P + Σ L <= C  while steps run in lanes,   Σ P + E <= C  while a step runs alone,

P being what each job keeps between steps, E what it needs within one, L the size of a lane. A job
that needs more than that waits until others have left, unless it was here first. One that keeps its
turn for too long loses it: what it holds then counts as taken, and the others go on, even where the
memory is too little.

Pure steps: no clock, no message. Times are seconds on any clock, memory is bytes. Source: Salus,
sections 3 and 4; what the paper does in one server process, jobs do here by asking.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dlsched.core.sums import ordered_sum
from dlsched.policies.node.salus.lanes import Lanes, Memory
from dlsched.policies.node.salus.turns import Order, Turns

MARGIN = 1.05  # of what was measured: it must not exceed its reservation at each step
FIRST_STEP = 5.0  # times the patience: it compiles, and finds its kernels
USUAL_STEPS = 10.0  # times the longest step so far, before a turn is taken away

State = Literal["idle", "waits", "runs", "late"]


class Turn(NamedTuple):
    """A job may run one step.

    Attributes:
        session: name of the job.
        memory: the most that it may hold meanwhile.
        shared: whether others wait for memory that it frees: its lane is theirs, too.
    """

    session: str
    memory: float
    shared: bool


@dataclass(slots=True)
class _Job:
    """A job at the gate.

    Attributes:
        state: whether it wants a turn, has one, or had it taken away.
        persistent: what it holds between steps, as told last.
        ephemeral: the most that it needed within a step; NaN before its first step has ended.
        reserved: what it has a lane for.
        asked: number of its request, by which those that run alone are in order.
        since: when its turn began.
        longest: of its steps, in seconds.
        left: seconds of steps that it still needs; infinite where it has not said.
        used: seconds of its steps so far.
        urgent: it must stop, and needs its turn for that.
    """

    state: State = "idle"
    persistent: float = 0.0
    ephemeral: float = math.nan
    reserved: Memory = Memory(0, 0)
    asked: int = 0
    since: float = 0.0
    longest: float = 0.0
    left: float = math.inf
    used: float = 0.0
    urgent: bool = False

    @property
    def is_known(self) -> bool:
        """Whether a step of it was measured."""
        return not math.isnan(self.ephemeral)


class Gate:
    """The jobs on one set of GPUs.

    Attributes:
        order: in which jobs of a lane take turns.
        lanes: what is reserved.
    """

    def __init__(
        self,
        capacity: float,
        order: Order = "fair",
        *,
        conserves_work: bool = True,
        patience_s: float = 60.0,
        opens: float = -math.inf,
    ) -> None:
        """No job yet.

        Args:
            capacity: memory of each GPU that jobs may use, in bytes.
            order: in which jobs of a lane take turns.
            conserves_work: whether a lane goes on with the next job when the first one wants no
                turn.
            patience_s: how long a turn may take, where the job has not shown that it needs longer.
            opens: no turn is given before; jobs that had turns before may still say so.
        """
        self.order: Order = order
        self.lanes = Lanes(capacity)
        self._conserves_work = conserves_work
        self._patience_s = patience_s
        self._opens = opens
        self._jobs: dict[str, _Job] = {}
        self._turns: dict[int, Turns] = {}  # by lane
        self._requests = 0
        self._lanes_first = False  # a step has run alone: the lanes get their turns before another

    # -- what jobs say -----------------------------------------------------------------------------

    def wants(
        self, session: str, now: float, *, persistent: float = 0.0, left: float = math.inf
    ) -> list[Turn]:
        """A job wants a turn; repeating it changes nothing, and a turn that it had is over.

        Args:
            session: name of the job.
            now: seconds.
            persistent: what it holds, in bytes.
            left: seconds of steps that it still needs, as far as it knows.
        """
        job = self._jobs.setdefault(session, _Job())
        if job.state in ("runs", "late"):  # it was given one that it could not take
            self._end_turn(session, 0.0)
            job.state = "idle"
            if job.is_known:
                self._reserve(session, job)
        if job.state == "idle":
            job.state = "waits"
            if persistent > job.persistent:  # it has loaded something between its steps
                job.persistent = persistent
                self._make_room()
            self._requests += 1
            job.asked = self._requests
            job.left = left
            self._enter_request(session, job)
        return self.look(now)

    def ended(self, session: str, now: float, persistent: float, peak: float) -> list[Turn]:
        """A job's step has ended.

        Args:
            session: name of the job.
            now: seconds.
            persistent: what it holds now, in bytes.
            peak: the most that it held during the step.
        """
        job = self._jobs.get(session)
        if job is None or job.state not in ("runs", "late"):
            return self.look(now)
        took = max(now - job.since, 0.0)
        job.longest = max(job.longest, took)
        job.used += took
        self._end_turn(session, took)
        job.state, job.urgent = "idle", False
        job.persistent = persistent
        needed = max(peak - persistent, 0.0)
        job.ephemeral = needed if not job.is_known else max(job.ephemeral, needed)
        self._reserve(session, job)
        return self.look(now)

    def resumes(
        self, session: str, now: float, *, runs: bool, persistent: float, ephemeral: float
    ) -> list[Turn]:
        """A job that was at the gate of an agent before says what it needs, and if it has a turn.

        Args:
            session: name of the job.
            now: seconds.
            runs: whether it runs a step.
            persistent: what it holds between steps, in bytes.
            ephemeral: the most that it needed within a step; NaN: no step has ended yet.
        """
        if session not in self._jobs:
            job = _Job(persistent=persistent, ephemeral=ephemeral)
            self._jobs[session] = job
            if runs:  # whichever lane it had: no other step begins until it ends
                job.state, job.since = "runs", now
            else:
                self._reserve(session, job)
            self._count_outside()
        return self.look(now)

    def must_stop(self, session: str, now: float) -> list[Turn]:
        """A job is asked to stop: it gets the next turn of its lane, to finish its step."""
        job = self._jobs.get(session)
        if job is not None:
            job.urgent = True
        return self.look(now)

    def freezes(self, session: str, now: float) -> list[Turn]:
        """A job stands still: its turn passes on, and it wants none until it says so again."""
        job = self._jobs.get(session)
        if job is not None and job.state == "runs":
            self._take_away(session, job)
        elif job is not None and job.state == "waits":
            job.state = "idle"
            number = self.lane_of(session)
            if number:
                self._turns[number].sessions[session].arrived = 0
        return self.look(now)

    def gone(self, session: str, now: float) -> list[Turn]:
        """A job has ended, or lets its GPUs go."""
        job = self._jobs.pop(session, None)
        if job is not None:
            self._leave_lane(session)
            self._place_others()
        return self.look(now)

    # -- time --------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `look` has something to do although no job says anything; infinite: never."""
        ends = [job.since + self._limit(job) for job in self._jobs.values() if job.state == "runs"]
        if self._opens > -math.inf and any(job.state == "waits" for job in self._jobs.values()):
            ends.append(self._opens)
        return min(ends, default=math.inf)

    def look(self, now: float) -> list[Turn]:
        """Take turns away that last too long, and give those that may begin now."""
        for session, job in self._jobs.items():
            if job.state == "runs" and now >= job.since + self._limit(job):
                self._take_away(session, job)
        if now < self._opens:
            return []
        self._opens = -math.inf
        return list(self._begin(now))

    def _take_away(self, session: str, job: _Job) -> None:
        job.state = "late"
        self._leave_lane(session)
        self._place_others()

    def _limit(self, job: _Job) -> float:
        if not job.is_known:
            return FIRST_STEP * self._patience_s
        return max(self._patience_s, USUAL_STEPS * job.longest)

    # -- what holds --------------------------------------------------------------------------------

    def running(self) -> list[str]:
        """Jobs that have a turn."""
        return [session for session, job in self._jobs.items() if job.state == "runs"]

    def late(self) -> list[str]:
        """Jobs whose turn was taken away, and has not ended."""
        return [session for session, job in self._jobs.items() if job.state == "late"]

    def lane_of(self, session: str) -> int:
        """The number of a job's lane; 0: its turns are alone."""
        return self.lanes.lane_of(session)

    def is_empty(self) -> bool:
        """Whether no job is here."""
        return not self._jobs

    # -- turns -------------------------------------------------------------------------------------

    def _begin(self, now: float) -> Iterator[Turn]:
        alone = self._next_alone()
        runs = self.running()
        if any(not self.lane_of(session) for session in runs):
            return  # a step runs alone
        waits_in_lane = any(turns.is_awaited for turns in self._turns.values())
        if alone is not None and not (self._lanes_first and waits_in_lane):
            if not runs:
                yield self._give(alone, now)
            return  # the lanes become idle for it
        for number in list(self._turns):
            turns = self._turns[number]
            picked = turns.pick(self._urgent())
            if picked is not None:
                yield self._give(picked, now)
        self._lanes_first = False

    def _urgent(self) -> set[str]:
        return {session for session, job in self._jobs.items() if job.urgent}

    def _next_alone(self) -> str | None:
        """The job that gets the next turn alone: the one that must stop, or asked first."""
        waiting = [
            (not job.urgent, job.asked, session)
            for session, job in self._jobs.items()
            if job.state == "waits" and not self.lane_of(session) and self._may_run_alone(session)
        ]
        return min(waiting)[2] if waiting else None

    def _may_run_alone(self, session: str) -> bool:
        job = self._jobs[session]
        if not job.is_known:
            return True
        held = ordered_sum(each.persistent for each in self._jobs.values())
        is_oldest = next(iter(self._jobs)) == session  # it goes on, whatever comes beside it
        return is_oldest or held + job.ephemeral <= self.lanes.capacity

    def _give(self, session: str, now: float) -> Turn:
        job = self._jobs[session]
        number = self.lane_of(session)
        job.state, job.since = "runs", now
        if not number:
            self._lanes_first = True
            others = ordered_sum(
                each.persistent for name, each in self._jobs.items() if name != session
            )
            return Turn(session, max(self.lanes.capacity - others, 0.0), len(self._jobs) > 1)
        lane = self.lanes.lanes[number]
        memory = job.reserved.persistent + lane.size
        return Turn(session, memory, len(lane.sessions) > 1)

    def _end_turn(self, session: str, took: float) -> None:
        number = self.lane_of(session)
        if number and self._turns[number].running == session:
            self._turns[number].end(took)

    # -- lanes -------------------------------------------------------------------------------------

    def _reserve(self, session: str, job: _Job) -> None:
        """See that a job has a lane for what it was measured to need."""
        fits = (
            self.lane_of(session)
            and self.lanes.used <= self.lanes.capacity
            and job.persistent <= job.reserved.persistent
            and job.ephemeral <= job.reserved.ephemeral
        )
        if not fits:
            self._leave_lane(session)
            self._make_room()

    def _make_room(self) -> None:
        """Give lanes up, the newest first, while jobs hold more than the lanes leave them."""
        self._count_outside()
        for number in sorted(self.lanes.lanes, reverse=True):
            if self.lanes.used <= self.lanes.capacity:
                break
            for session in list(self.lanes.lanes[number].sessions):
                if self._jobs[session].state != "runs":
                    self._leave_lane(session)
        self._place_others()

    def _place_others(self) -> None:
        """Find lanes for jobs without one: something has changed."""
        self._count_outside()
        for session, job in self._jobs.items():
            if self.lane_of(session) or not job.is_known or job.state in ("runs", "late"):
                continue
            need = Memory(math.ceil(job.persistent * MARGIN), math.ceil(job.ephemeral * MARGIN))
            self._count_outside(but=session)
            if self.lanes.find(need) is None:
                self._count_outside()
                continue
            self.lanes.submit(session, need)
            job.reserved = need
            number = self.lane_of(session)
            if number not in self._turns:
                self._turns[number] = Turns(self.order, conserves_work=self._conserves_work)
            self._turns[number].enter(session, job.used + job.left, job.used)
            if job.state == "waits":
                self._enter_request(session, job)
        self._count_outside()

    def _count_outside(self, but: str = "") -> None:
        """Count what jobs without a lane hold; of one that is late all that it may use."""
        self.lanes.outside = ordered_sum(
            job.persistent + (job.ephemeral if job.state == "late" and job.is_known else 0)
            for session, job in self._jobs.items()
            if session != but and not self.lane_of(session)
        )

    def _enter_request(self, session: str, job: _Job) -> None:
        number = self.lane_of(session)
        if number:
            turns = self._turns[number]
            turns.sessions[session].total = job.used + job.left
            turns.want(session)

    def _leave_lane(self, session: str) -> None:
        number = self.lane_of(session)
        if number:
            self.lanes.remove(session)
            self._turns[number].leave(session)
            if not self._turns[number].sessions:
                del self._turns[number]
        self._count_outside()
