"""What takes time in an agent: tasks of its event loop, and calls in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, TypeVarTuple

from dlsched.protocol.messages import RunKey

log = logging.getLogger(__name__)
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class AgentTasks:
    """The tasks of one agent; a failure ends the agent, but not of those `of_job`."""

    def __init__(self) -> None:
        """Prepare to run tasks; an event loop must be running."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._work = ThreadPoolExecutor(4, thread_name_prefix="work")
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of the event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def of_job(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """As `start`, of work whose content a job has chosen; its failure is only logged."""

        async def whole() -> None:
            try:
                await work
            except Exception as error:
                log.error("of-job-failed why=%.300s", f"{type(error).__name__}: {error}")

        return self.start(whole())

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the agent with this error, unless an earlier one already ends it."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def in_thread(self, call: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Return what a call that may block returns; several run at once."""
        return await asyncio.get_running_loop().run_in_executor(self._work, call, *arguments)

    async def on_disk(self, call: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Return what a call that uses the disk returns; they run one by one, in order."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, call, *arguments)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end; calls in threads are left behind."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown(wait=False)
        self._work.shutdown(wait=False)


class NewestOfRun:
    """Messages of jobs that are answered one by one: of a run's that wait, the newest is kept."""

    def __init__(
        self, tasks: AgentTasks, answer: Callable[[RunKey, Any], Coroutine[Any, Any, None]]
    ) -> None:
        """Answer none yet; `answer` answers one."""
        self._tasks, self._answer = tasks, answer
        self._waiting: dict[RunKey, Any] = {}  # of runs with one under way; None: no other one

    def take(self, key: RunKey, message: Any) -> None:
        """Answer a message of a run, after the one that is under way."""
        if key in self._waiting:
            self._waiting[key] = message
        else:
            self._waiting[key] = None
            self._tasks.of_job(self._answer_all(key, message))

    async def _answer_all(self, key: RunKey, message: Any) -> None:
        try:
            while message is not None:
                await self._answer(key, message)
                message, self._waiting[key] = self._waiting[key], None
        finally:
            del self._waiting[key]
