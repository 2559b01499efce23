"""A run tells which of its short tasks have ended, and gets more."""

from __future__ import annotations

import math
from functools import partial

from dlsched.core.errors import BadInput, Unavailable
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.daemon.short_tasks.task_list import MOST_GIVEN, TaskList
from dlsched.db.task_runs import TaskEnd, TasksEnded, TasksGiven
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import JobId, NodeName, RunId
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

LONGEST_S = 1e9
_MOST_TOLD = 4 * MOST_GIVEN


class TaskLists:
    """The lists of arrays that runs have asked for in this term."""

    def __init__(self, driver: LeaderDriver) -> None:
        """Start without any."""
        self._driver = driver
        self._lists: dict[JobId, TaskList] = {}

    def began(self) -> None:
        """Forget everything: a term has begun, and the database has what counts."""
        self._lists = {}

    async def exchange(
        self, job: Job, run: Run, told: control_pb2.TaskExchange
    ) -> control_pb2.TaskBundle:
        """Store which tasks have ended and which the run gets; the answer is durable.

        Raises:
            NotPossible: the run is over, or its job has no short tasks.
            BadInput: impossible numbers.
            Unavailable: the lead was lost meanwhile.
        """
        driver = self._driver
        spec = driver.table.spec(job)
        if spec.array is None or not spec.array.short_tasks:
            raise NotPossible(f"job {job.job} has no short tasks")
        ends = ends_of(told, len(spec.array.short_tasks))
        array, lines = JobId(job.job - spec.index), spec.array.short_tasks
        tasks = await self._of(array, lines)
        run_id = run.key.run_id
        if self._is_over(run_id):  # perhaps since the call
            raise NotPossible(f"run {run.key} is over")
        adopted = tasks.adopt(run_id, (*told.held, *told.ended))
        known = tasks.end(run_id, ends)
        tasks.take_back(self._is_over)
        given = tasks.give(run_id, told.held, self._tokens(array, len(spec.array.tasks)))
        now = wall()
        rows: list[TasksEnded | TasksGiven] = []

        def store_given(numbers: list[int]) -> None:
            if numbers:
                node, both = NodeName(told.node), tuple(numbers)
                rows.append(TasksGiven(job=array, run_id=run_id, node=node, tasks=both, at=now))

        store_given(adopted)
        if known:
            rows.append(TasksEnded(job=array, run_id=run_id, ends=known, at=now))
        store_given(given)
        over = not tasks.waiting
        if rows:
            await driver.attach(*rows)
        tasks.unstored.difference_update(end.task for end in known)
        return control_pb2.TaskBundle(
            numbers=given, lines=[lines[task - 1] for task in given], over=over
        )

    async def _of(self, array: JobId, lines: tuple[str, ...]) -> TaskList:
        found = self._lists.get(array)
        if found is not None:
            return found
        lists, driver = self._lists, self._driver
        rows = await driver.read(partial(driver.store.task_runs, array))
        if lists is not self._lists:
            raise Unavailable("the lead was lost meanwhile; ask again")
        live = driver.reserved.jobs
        for other in [each for each in lists if each not in live and not self._runs(each)]:
            del lists[other]
        return lists.setdefault(array, TaskList(lines, rows))

    def _runs(self, array: JobId) -> bool:
        """Whether a run that has tasks of an array is not over."""
        return not all(map(self._is_over, self._lists[array].given))

    def _is_over(self, run_id: RunId) -> bool:
        run = self._driver.committed.runs.get(run_id)
        return run is None or run.is_over

    def _tokens(self, array: JobId, elements: int) -> int:
        """Elements of an array that have not ended."""
        jobs = self._driver.committed.jobs
        rows = (jobs.get(JobId(array + index)) for index in range(elements))
        return sum(row is not None and not row.status.is_terminal for row in rows)


def ends_of(told: control_pb2.TaskExchange, total: int) -> list[TaskEnd]:
    """The ends that a run tells of.

    Raises:
        BadInput: they cannot be.
    """
    columns = (told.ended, told.codes, told.signals, told.ran_s)
    if len({len(column) for column in columns}) > 1:
        raise BadInput("short tasks: columns of different length")
    if max(len(told.ended), len(told.held)) > _MOST_TOLD:
        raise BadInput(f"short tasks: more than {_MOST_TOLD} at once")
    if any(not 1 <= task <= total for task in (*told.ended, *told.held)):
        raise BadInput(f"short tasks: numbers are 1 to {total}")
    found = []
    for task, code, signal, ran_s in zip(*columns, strict=True):
        if not (0 <= code <= 255 and 0 <= signal <= 64 and math.isfinite(ran_s)):
            raise BadInput(f"short tasks: task {task} cannot have ended so")
        end = TaskEnd(task=task, code=code, signal=signal, ran_s=min(max(ran_s, 0.0), LONGEST_S))
        found.append(end)
    return found
