"""The thread that writes, and the one that keeps the lead.

One thread loads and writes transactions, in the order asked. Another one contends for the lead and
confirms it, so that a long transaction or a large database delays no heartbeat.

Group commit comes from the leader's step: one transaction is in flight, and what is decided
meanwhile is the next. So nothing waits for a timer, and a burst costs few commits. What the store
answers goes back to the main thread as an event.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlsched.core.errors import DlschedError
from dlsched.daemon.round.ended_jobs import read_ended
from dlsched.db import errors
from dlsched.db.reading.loading import JobFacts, Loaded
from dlsched.db.reading.outcomes import StoredFailedStarts
from dlsched.db.reading.queries import StoredJob
from dlsched.db.records import Dependency, JobSpec
from dlsched.db.store import Store
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job
from dlsched.protocol.messages import Epoch, JobId
from dlsched.system.clock import wall
from dlsched.system.fault_points import fault_point

log = logging.getLogger("dlsched.daemon.writer")
FAILED_STARTS_S = 3600.0


@dataclass(frozen=True, slots=True)
class TermBegun:
    """The database made this process the leader.

    Attributes:
        asked_at: when the lead was asked for, in seconds of the leader's clock.
        loaded: everything that lives.
        ended: ended jobs that live ones depend on.
        learn_from: ended jobs that policies are to know, in the order of their ends.
        failed_starts: of the last hour.
    """

    asked_at: float
    loaded: Loaded
    ended: Mapping[JobId, StoredJob]
    learn_from: Sequence[StoredJob]
    failed_starts: StoredFailedStarts = StoredFailedStarts()


@dataclass(frozen=True, slots=True)
class _Begin:
    """A term was won: load it."""

    asked_at: float
    epoch: Epoch


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
_Command = leader.Contend | leader.Confirm | leader.Persist | _Begin
_Queue = queue.SimpleQueue[_Command | None]


class Writer:
    """Runs the store's writes in a thread of its own, and the leadership in another one."""

    def __init__(self, store: Store, name: str, report: Callable[[StoreAnswer], None]) -> None:
        """Make the threads; `start` starts them.

        `name` is this daemon's among those that contend for the lead; `report` takes every answer,
        in the thread that has it.
        """
        self._store = store
        self._name = name
        self._report = report
        self._asked: _Queue = queue.SimpleQueue()
        self._asked_to_lead: _Queue = queue.SimpleQueue()
        self._asking: set[type] = set()  # kinds of requests of which one waiting is enough
        self._term: Epoch | None = None  # that stands, as far as these threads know
        self._changing_term = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(asked,), name=name, daemon=True)
            for asked, name in (
                (self._asked, "dlsched-writer"),
                (self._asked_to_lead, "dlsched-leading"),
            )
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def ask(self, command: leader.Contend | leader.Confirm | leader.Persist) -> None:
        """Queue a request; with a slow store, requests of each beat do not pile up."""
        if isinstance(command, leader.Persist):
            self._asked.put(command)
        elif type(command) not in self._asking:
            self._asking.add(type(command))
            self._asked_to_lead.put(command)

    def stop(self, within_s: float = 10.0) -> None:
        """Finish what is queued and end."""
        for asked in (self._asked, self._asked_to_lead):
            asked.put(None)
        until = time.monotonic() + within_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _work(self, asked: _Queue) -> None:
        while (command := asked.get()) is not None:
            number = command.number if isinstance(command, leader.Persist) else None
            self._asking.discard(type(command))
            try:
                answer = self._do(command)
            except errors.StoreUnavailable as error:
                answer = StoreFailed(str(error), number)
            except DlschedError as error:
                answer = StoreFailed(str(error), number, fatal=True)
            except Exception as error:
                log.exception("event=store-defect number=%s", number)
                answer = StoreFailed(f"{type(error).__name__}: {error}", number, fatal=True)
            del command  # while the next one is awaited, nothing keeps what jobs execute
            if answer is not None:
                self._report(answer)

    def _do(self, command: _Command) -> StoreAnswer | None:
        match command:
            case leader.Contend(asked_at=asked_at):
                self._contend(asked_at)
                return None
            case _Begin(asked_at=asked_at, epoch=epoch):
                return self._begin(asked_at, epoch)
            case leader.Confirm(asked_at=asked_at, epoch=epoch):
                if self._store.confirm(epoch):
                    return Written(lambda now: leader.Confirmed(now, asked_at))
                return self._deposed(epoch)
            case leader.Persist(epoch=epoch, number=number, writes=writes):
                fault_point("before-commit")
                try:
                    self._store.persist(epoch, number, writes, wall())
                except errors.Deposed:
                    return self._deposed(epoch)
                fault_point("after-commit-before-answer")
                return Written(lambda now: leader.Persisted(now, number))
        raise AssertionError(command)

    def _contend(self, asked_at: float) -> None:
        """Ask for the lead, and have the writer load the term that was won.

        Asked again while it loads, another term would end the one just begun; so its heartbeat is
        renewed instead.
        """
        term = self._term
        if term is not None:
            if not self._store.confirm(term):
                self._forget(term)
            return
        won = self._store.contend(self._name)
        if won is not None:
            self._term = won.epoch
            self._asked.put(_Begin(asked_at, won.epoch))

    def _deposed(self, epoch: Epoch) -> StoreAnswer:
        self._forget(epoch)
        return Written(leader.Deposed)

    def _forget(self, epoch: Epoch) -> None:
        """Contend again, unless a later term has begun meanwhile."""
        with self._changing_term:
            if self._term is not None and self._term <= epoch:
                self._term = None

    def _begin(self, asked_at: float, epoch: Epoch) -> TermBegun | None:
        try:
            begun = self._read_term(asked_at)
        except BaseException:
            self._forget(epoch)
            raise
        if begun.loaded.ledger.epoch != epoch:  # this process was paused, and another one leads
            self._forget(epoch)
            return None
        return begun

    def _read_term(self, asked_at: float) -> TermBegun:
        """Read all that a leader begins with."""
        loaded = self._store.load()
        live = loaded.ledger.jobs
        wanted = {
            dependency.job
            for number, row in live.items()
            for dependency in _dependencies(row, loaded.jobs.get(number))
            if dependency.job and dependency.job not in live
        }
        known = self._store.jobs(wanted) if wanted else []
        now = wall()
        return TermBegun(
            asked_at,
            loaded,
            ended={each.job.job: each for each in known},
            learn_from=read_ended(self._store, loaded),
            failed_starts=self._store.failed_starts(now - FAILED_STARTS_S, now),
        )


def _dependencies(row: Job, facts: JobFacts | None) -> Sequence[Dependency]:
    """A job's dependencies, updates included."""
    updated = None if facts is None else facts.updated.get("dependencies")
    if isinstance(updated, tuple | list):
        return updated
    spec = row.request.spec
    return spec.body.dependencies if isinstance(spec, JobSpec) else ()
