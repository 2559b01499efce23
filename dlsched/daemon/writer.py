"""The one thread that writes: leadership, loading and transactions, in the order asked.

Group commit comes from the leader's step: one transaction is in flight, and what is decided
meanwhile is the next. So nothing waits for a timer, and a burst costs few commits. What the store
answers goes back to the main thread as an event.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlsched.core.errors import DlschedError
from dlsched.db import errors
from dlsched.db.reading.loading import JobFacts, Loaded
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Dependency, JobSpec
from dlsched.db.store import Store
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall
from dlsched.system.fault_points import fault_point

log = logging.getLogger("dlsched.daemon.writer")


@dataclass(frozen=True, slots=True)
class TermBegun:
    """The database made this process the leader.

    Attributes:
        asked_at: when the lead was asked for, in seconds of the leader's clock.
        loaded: everything that lives.
        ended: ended jobs that live ones depend on.
    """

    asked_at: float
    loaded: Loaded
    ended: Mapping[JobId, StoredJob]


@dataclass(frozen=True, slots=True)
class Written:
    """An event for the leader."""

    event: Callable[[float], leader.Event]


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store did not do what was asked; `number` of the transaction, if it was one."""

    why: str
    number: int | None = None
    fatal: bool = False


StoreAnswer = TermBegun | Written | StoreFailed


class Writer:
    """Runs the store's writes in a thread of its own."""

    def __init__(self, store: Store, name: str, report: Callable[[StoreAnswer], None]) -> None:
        """Make the thread; `start` starts it.

        `name` is this daemon's among those that contend for the lead; `report` takes every answer,
        in the writer thread.
        """
        self._store = store
        self._name = name
        self._report = report
        self._asked: queue.SimpleQueue[leader.Command | None] = queue.SimpleQueue()
        self._asking: set[type] = set()  # kinds of requests of which one waiting is enough
        self._leads = False  # a term of this writer's stands, as far as it knows
        self._thread = threading.Thread(target=self._work, name="dlsched-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, command: leader.Contend | leader.Confirm | leader.Persist) -> None:
        """Queue a request; with a slow store, requests of each beat do not pile up."""
        if not isinstance(command, leader.Persist):
            if type(command) in self._asking:
                return
            self._asking.add(type(command))
        self._asked.put(command)

    def stop(self, within_s: float = 10.0) -> None:
        """Finish what is queued and end."""
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join(within_s)

    def _work(self) -> None:
        while (command := self._asked.get()) is not None:
            number = command.number if isinstance(command, leader.Persist) else None
            self._asking.discard(type(command))
            try:
                answer = self._do(command)
            except errors.Deposed:
                answer = self._deposed()
            except errors.StoreUnavailable as error:
                answer = StoreFailed(str(error), number)
            except DlschedError as error:
                answer = StoreFailed(str(error), number, fatal=True)
            except Exception as error:
                log.exception("event=store-defect number=%s", number)
                answer = StoreFailed(f"{type(error).__name__}: {error}", number, fatal=True)
            if answer is not None:
                self._report(answer)

    def _do(self, command: leader.Command) -> StoreAnswer | None:
        match command:
            case leader.Contend(asked_at=asked_at):
                # Asked again while the answer was on its way, this would end the term just begun.
                if self._leads or self._store.contend(self._name) is None:
                    return None
                begun = self._begin(asked_at)
                self._leads = True
                return begun
            case leader.Confirm(asked_at=asked_at, epoch=epoch):
                if self._store.confirm(epoch):
                    return Written(lambda now: leader.Confirmed(now, asked_at))
                return self._deposed()
            case leader.Persist(epoch=epoch, number=number, writes=writes):
                fault_point("before-commit")
                self._store.persist(epoch, number, writes, wall())
                fault_point("after-commit-before-answer")
                return Written(lambda now: leader.Persisted(now, number))
        raise AssertionError(command)

    def _deposed(self) -> StoreAnswer:
        self._leads = False
        return Written(leader.Deposed)

    def _begin(self, asked_at: float) -> TermBegun:
        loaded = self._store.load()
        live = loaded.ledger.jobs
        wanted = {
            dependency.job
            for number, row in live.items()
            for dependency in _dependencies(row, loaded.jobs.get(number))
            if dependency.job and dependency.job not in live
        }
        known = self._store.jobs(wanted) if wanted else []
        return TermBegun(asked_at, loaded, {stored.job.job: stored for stored in known})


def _dependencies(row: Job, facts: JobFacts | None) -> Sequence[Dependency]:
    """A job's dependencies, updates included."""
    updated = None if facts is None else facts.updated.get("dependencies")
    if isinstance(updated, tuple | list):
        return updated
    spec = row.request.spec
    return spec.body.dependencies if isinstance(spec, JobSpec) else ()
