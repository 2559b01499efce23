"""The one thread that writes: leadership, loading and transactions, in the order asked.

Group commit comes from the leader's step: one transaction is in flight and what is decided
meanwhile is the next, so nothing waits for a timer and a burst costs few commits. Whatever the
store says comes back to the main thread as an event.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dlsched.core.errors import DlschedError
from dlsched.daemon.clock import wall
from dlsched.daemon.faultpoints import faultpoint
from dlsched.db import errors
from dlsched.protocol import leader
from dlsched.protocol.messages import JobId

__all__ = ["Loaded", "Outcome", "StoreFailed", "TermBegun", "Writer", "Written"]

log = logging.getLogger("dlsched.daemon.writer")


class Loaded(Protocol):
    """What a store loads at the start of a term."""

    @property
    def ledger(self) -> Any:
        """The protocol's ledger of what lives."""

    @property
    def jobs(self) -> Mapping[JobId, Any]:
        """Facts by job."""


@dataclass(frozen=True, slots=True)
class TermBegun:
    """The database made this process the leader, and this is what it found."""

    asked_at: float
    loaded: Any
    outcomes: Mapping[JobId, Any]  # ended jobs that live ones depend on


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


Outcome = TermBegun | Written | StoreFailed


class Writer:
    """Runs the store's writes; `report` is called in the writer thread."""

    def __init__(self, store: Any, name: str, report: Callable[[Outcome], None]) -> None:
        self._store = store
        self._name = name
        self._report = report
        self._asked: queue.SimpleQueue[leader.Command | None] = queue.SimpleQueue()
        self._asking: set[type] = set()  # kinds that one waiting request is enough of
        self._leads = False  # a term of this writer's stands, as far as it knows
        self._thread = threading.Thread(target=self._work, name="dlsched-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, command: leader.Contend | leader.Confirm | leader.Persist) -> None:
        """Queue a request; a slow store gathers no pile of beats."""
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
                outcome = self._do(command)
            except errors.Deposed:
                outcome = self._deposed()
            except errors.StoreUnavailable as error:
                outcome = StoreFailed(str(error), number)
            except DlschedError as error:
                outcome = StoreFailed(str(error), number, fatal=True)
            except Exception as error:
                log.exception("event=store-defect number=%s", number)
                outcome = StoreFailed(f"{type(error).__name__}: {error}", number, fatal=True)
            if outcome is not None:
                self._report(outcome)

    def _do(self, command: leader.Command) -> Outcome | None:
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
                faultpoint("before-commit")
                self._store.persist(epoch, number, writes, wall())
                faultpoint("after-commit-before-answer")
                return Written(lambda now: leader.Persisted(now, number))
        raise AssertionError(command)

    def _deposed(self) -> Outcome:
        self._leads = False
        return Written(leader.Deposed)

    def _begin(self, asked_at: float) -> TermBegun:
        loaded = self._store.load()
        live = loaded.ledger.jobs
        wanted = {
            dependency.job
            for number, row in live.items()
            for dependency in _conditions(row.request.spec, loaded.jobs.get(number))
            if dependency.job and dependency.job not in live
        }
        known = self._store.jobs(sorted(wanted)) if wanted else ()
        outcomes = known if isinstance(known, Mapping) else {row.job: row for row in known}
        return TermBegun(asked_at, loaded, outcomes)


def _conditions(spec: Any, facts: Any) -> Any:
    """Whom a job waits for, as it stands."""
    updated = getattr(facts, "updated", {}).get("dependencies")
    return (
        updated if updated is not None else getattr(getattr(spec, "body", None), "dependencies", ())
    )
