"""The clock over servers and schedulers: arrivals, ends of tasks, reports of waits.

Events of one moment are taken together; then schedulers act in their order, then servers report.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.apollo.corrections import Tolerance, Trigger, is_straggler, trigger
from dlsched.policies.scheduling.apollo.tokens import Waiting, upgrades
from dlsched.policies.scheduling.apollo.waits import has_changed
from simulate.worlds.short_tasks.options import Kind, Options
from simulate.worlds.short_tasks.scheduler import Choice, JobState, Scheduler
from simulate.worlds.short_tasks.servers import Server
from simulate.worlds.short_tasks.work import Copy, Job, Task, longest_paths, run_times


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes:
        jobs: in the order of their arrival.
        waits: seconds between sending and start, of each regular task at its first start.
        errors: by how many seconds these waits were not as expected.
        core_s: core-seconds of copies that ended well and first.
        wasted_core_s: of all others.
        counts: batches, sent tasks, copies by trigger, and so on.
    """

    jobs: list[JobState] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    core_s: float = 0.0
    wasted_core_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


class World:
    """All servers and schedulers of one run."""

    def __init__(
        self, jobs: Sequence[Job], kinds: Sequence[Kind], matching: str, options: Options
    ) -> None:
        """Have all jobs still to come.

        Raises:
            BadInput: a task fits on no server.
        """
        self._options = options
        self.servers = [
            Server(kind.cores, kind.memory, kind.success, (options.seed, 2, number))
            for number, kind in enumerate(kind for kind in kinds for _ in range(kind.count))
        ]
        _check_sizes(jobs, kinds)
        stages = [stage for job in jobs for stage in job.stages]
        sizes = (
            sorted({stage.cores for stage in stages}),
            sorted({stage.memory for stage in stages}),
        )
        self._sizes = sizes
        self._schedulers = [
            Scheduler(number, len(self.servers), sizes, matching, options)
            for number in range(options.schedulers)
        ]
        self._states: dict[int, JobState] = {}
        self._jobs = jobs
        self._random = np.random.default_rng((options.seed, 3))
        servers = len(self.servers)
        self._tried: tuple[Ints, Ints] = (np.zeros(servers, np.int64), np.zeros(servers, np.int64))
        self._last_reports = [self._matrix(number, 0.0) for number in range(servers)]
        self._agenda: list[tuple[float, int, int, Copy | None]] = []
        self._events = 0
        self._tasks = 0
        self._first_start: set[int] = set()
        self.now = 0.0
        self.outcome = Outcome()
        for number, job in enumerate(jobs):
            self._at(job.arrival, number, None)

    # -- time ----------------------------------------------------------------------------------

    def _at(self, when: float, job: int, copy: Copy | None) -> None:
        self._events += 1
        heapq.heappush(self._agenda, (when, self._events, job, copy))

    def run(self) -> Outcome:
        """Follow all jobs to their ends."""
        due = self._options.publish_s
        while self._agenda:
            self.now = min(self._agenda[0][0], due)
            if self.now == due:
                self._report_all()
                due += self._options.publish_s
            while self._agenda and self._agenda[0][0] <= self.now:
                _, _, number, copy = heapq.heappop(self._agenda)
                if copy is None:
                    self._arrive(number)
                elif copy in self.servers[copy.server].running:
                    self._end(number, copy)
            self.act()
        return self.outcome

    def act(self) -> None:
        """Let all schedulers act, until none has anything to send."""
        for scheduler in self._schedulers:
            for state in scheduler.jobs:
                self._upgrade(state)
                while chosen := scheduler.choose(state, self._tried, self.now):
                    self.outcome.counts["batches"] += 1
                    for choice in chosen:
                        self._send(state, choice)
                    for server in {choice.server for choice in chosen}:
                        scheduler.told(server, self._matrix(server, self.now), self.now)
        if self._options.change < np.inf:
            for server in range(len(self.servers)):
                self._report(server, self._options.change)

    def _matrix(self, server: int, now: float) -> Floats:
        return self.servers[server].matrix(now, *self._sizes)

    def _report(self, server: int, share: float) -> None:
        """Tell all schedulers the waits of a server if they have changed by more than a share."""
        matrix = self._matrix(server, self.now)
        if share < 0 or has_changed(self._last_reports[server], matrix, share):
            self._last_reports[server] = matrix
            self.outcome.counts["reports"] += 1
            for scheduler in self._schedulers:
                scheduler.told(server, matrix, self.now)

    def _report_all(self) -> None:
        for server in range(len(self.servers)):
            self._report(server, -1.0)
        if self._options.corrections:
            for scheduler in self._schedulers:
                for state in scheduler.jobs:
                    self._correct(scheduler, state)

    # -- jobs and tasks ------------------------------------------------------------------------

    def _arrive(self, number: int) -> None:
        job, options = self._jobs[number], self._options
        everything = int(ordered_sum(server.cores for server in self.servers))
        tokens = next(t for t in (job.tokens, options.tokens, everything) if t is not None)
        left = [stage.tasks for stage in job.stages]
        state = JobState(job=job, number=number, tokens=tokens, left=left)
        self._states[number] = state
        self.outcome.jobs.append(state)
        self._schedulers[number % options.schedulers].jobs.append(state)
        for stage, described in enumerate(job.stages):
            if not described.parents:
                self._begin_stage(state, stage)

    def _begin_stage(self, state: JobState, stage: int) -> None:
        described = state.job.stages[stage]
        priority = -longest_paths(state.job.stages)[described.name]
        random = np.random.default_rng((self._options.seed, 4, state.number, stage))
        times = run_times(described, random)
        homes = random.integers(len(self.servers), size=len(times))
        for runtime, home in zip(times.tolist(), homes.tolist(), strict=True):
            self._tasks += 1
            state.add(
                Task(
                    number=self._tasks,
                    job=state.number,
                    stage=stage,
                    priority=priority,
                    runtime=runtime,
                    home=home,
                )
            )

    def _send(self, state: JobState, choice: Choice) -> None:
        task, options = choice.task, self._options
        stage = state.stage_of(task)
        seconds = task.runtime + (0.0 if task.home == choice.server else options.fetch_s)
        if options.straggler_share and self._random.random() < options.straggler_share:
            seconds *= options.straggler_factor
        copy = Copy(
            task=task,
            server=choice.server,
            cores=stage.cores,
            memory=stage.memory,
            seconds=seconds,
            expected=choice.seconds,
            regular=choice.regular,
            sent_at=self.now,
            told_wait=choice.wait,
        )
        task.copies.append(copy)
        server = self.servers[choice.server]
        (server.queue if choice.regular else server.opportunistic).append(copy)
        self._count(state, copy, 1)
        self.outcome.counts["regular" if choice.regular else "opportunistic"] += 1
        self._start(choice.server)

    def _count(self, state: JobState, copy: Copy, by: int) -> None:
        if copy.regular:
            state.regular += by
        else:
            state.opportunistic += by

    def _start(self, number: int) -> None:
        """Start what can start on a server; end what makes room, and other copies that wait."""
        started, ended = self.servers[number].start(self.now)
        for copy in ended:
            self.outcome.counts["ended for regular ones"] += 1
            self._drop(copy)
        for copy in started:
            state = self._states[copy.task.job]
            wait = self.now - copy.sent_at
            total, count = state.waits.get(copy.task.stage, (0.0, 0))
            state.waits[copy.task.stage] = (total + wait, count + 1)
            if copy.regular and copy.task.number not in self._first_start:
                self._first_start.add(copy.task.number)
                self.outcome.waits.append(wait)
                self.outcome.errors.append(abs(wait - copy.told_wait))
            self._at(self.now + copy.seconds, state.number, copy)
        for copy in started:
            for other in [each for each in copy.task.copies if each.started_at is None]:
                self._drop(other)

    def _drop(self, copy: Copy) -> None:
        """End a copy; a task without another one is ready again."""
        if copy.started_at is not None:
            self.outcome.wasted_core_s += copy.cores * (self.now - copy.started_at)
        self._leave(copy)
        if not copy.task.is_done and not copy.task.copies:
            self._states[copy.task.job].add(copy.task)

    def _leave(self, copy: Copy) -> None:
        """A copy is on its server no more."""
        self.servers[copy.server].remove(copy)
        copy.task.copies.remove(copy)
        self._count(self._states[copy.task.job], copy, -1)

    def _end(self, number: int, copy: Copy) -> None:
        """A copy has run to its end: the task is done, or it has failed."""
        state, task, server = self._states[number], copy.task, self.servers[copy.server]
        succeeded, tried = self._tried
        tried[copy.server] += 1
        if server.success < 1 and self._random.random() >= server.success:
            self.outcome.counts["failures"] += 1
            self._drop(copy)
            self._start(copy.server)
            return
        succeeded[copy.server] += 1
        scheduler = self._schedulers[number % self._options.schedulers]
        scheduler.times.finished((number, task.stage), copy.seconds)
        self.outcome.core_s += copy.cores * copy.seconds
        task.is_done = True
        self._leave(copy)
        touched = {copy.server}
        if task.copied and copy.sent_at > min((c.sent_at for c in task.copies), default=np.inf):
            self.outcome.counts["copies that won"] += 1
        for other in list(task.copies):
            touched.add(other.server)
            self._drop(other)
        self._done(state, task)
        for each in sorted(touched):
            self._start(each)

    def _done(self, state: JobState, task: Task) -> None:
        self.outcome.counts["done"] += 1
        state.left[task.stage] -= 1
        if state.left[task.stage]:
            return
        stages = state.job.stages
        name = stages[task.stage].name
        over = {stage.name for stage, left in zip(stages, state.left, strict=True) if not left}
        for number, stage in enumerate(stages):
            if name in stage.parents and over.issuperset(stage.parents):
                self._begin_stage(state, number)
        if not any(state.left):
            state.ended_at = self.now

    # -- later decisions -----------------------------------------------------------------------

    def _upgrade(self, state: JobState) -> None:
        """Turn opportunistic copies into regular ones where tokens are free."""
        free = state.tokens - state.regular
        if free <= 0 or not state.opportunistic:
            return
        waiting = [
            Waiting(copy, sum(each.regular for each in server.running), self.now - copy.sent_at)
            for server in self.servers
            for copy in (*server.opportunistic, *server.running)
            if not copy.regular and copy.task.job == state.number
        ]
        for copy in upgrades(waiting, free):
            assert isinstance(copy, Copy)
            if copy not in copy.task.copies:
                continue  # it was ended for another one
            self._count(state, copy, -1)
            self.servers[copy.server].upgrade(copy)
            self._count(state, copy, 1)
            self.outcome.counts["upgrades"] += 1
            self._start(copy.server)

    def _correct(self, scheduler: Scheduler, state: JobState) -> None:
        """Copy tasks that wait, or run, much longer than was expected; each at most once."""
        for server in self.servers:
            for copy, left in zip(list(server.queue), server.waits(self.now), strict=True):
                if copy.task.job != state.number or copy.task.copied or copy.started_at is not None:
                    continue
                mean = state.mean_wait(copy.task.stage)
                told, waited = copy.told_wait, self.now - copy.sent_at
                why = trigger(told, waited, left, mean, Tolerance())
                if why is not None:
                    self._copy(scheduler, state, copy, left + copy.expected, why)
            for copy in list(server.running):
                task = copy.task
                if task.job != state.number or task.copied or not copy.regular:
                    continue
                assert copy.started_at is not None
                left = copy.started_at + copy.seconds - self.now
                if is_straggler(left, scheduler.estimate(state, task)):
                    self._copy(scheduler, state, copy, left, Trigger.STRAGGLER)

    def _copy(
        self, scheduler: Scheduler, state: JobState, copy: Copy, left: float, why: Trigger
    ) -> None:
        """Send a second copy to a better server, if there is one and a token for it."""
        if state.regular >= state.tokens:
            return
        choice = scheduler.better(state, copy.task, left, self._tried, self.now)
        if choice is None:
            return
        copy.task.copied = True
        self.outcome.counts[why.value] += 1
        self._send(state, choice)
        scheduler.told(choice.server, self._matrix(choice.server, self.now), self.now)


def _check_sizes(jobs: Sequence[Job], kinds: Sequence[Kind]) -> None:
    for job in jobs:
        for stage in job.stages:
            fits = any(stage.cores <= k.cores and stage.memory <= k.memory for k in kinds)
            if not fits:
                raise BadInput(
                    f"job {job.id}, stage {stage.name}: {stage.cores:g} cores and "
                    f"{stage.memory:g} of memory fit on no server"
                )
