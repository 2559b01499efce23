"""The main thread's core: events into the leader's step, commands out, clients answered.

Invariant: `state` changes in `step` only, and `step` is only called in the event loop's thread.
The board follows what is *reserved*, in order; the job table and every answer follow what is
*committed*.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from dlsched.core.errors import DlschedError, Unavailable
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.faultpoints import faultpoint
from dlsched.daemon.jobtable import JobTable
from dlsched.daemon.refusals import Conflict, NotFound, Refused
from dlsched.daemon.settings import Settings
from dlsched.daemon.writer import Outcome, StoreFailed, TermBegun, Writer, Written
from dlsched.db.records import RoundDone
from dlsched.protocol import leader
from dlsched.protocol.leader import Role
from dlsched.protocol.ledger import Attach, Ledger, Write
from dlsched.protocol.messages import JobId, NodeName, Nudge, Reply, Sync

__all__ = ["Shell"]

log = logging.getLogger("dlsched.daemon")
T = TypeVar("T")
REMEMBERED_S = 30.0  # an ended job stays in memory so long, for those who wait and look


class Shell:
    """Leader state, its database, and who waits for what."""

    def __init__(self, store: Any, settings: Settings, name: str) -> None:
        self.store = store
        self.settings = settings
        self.name = name
        self.state = leader.LeaderState(name=name, timing=settings.timing.timing())
        self.table = JobTable()
        self.outcomes: dict[JobId, Any] = {}  # ended jobs of the store that live ones wait for
        self.store_down = ""  # why nothing can be stored now
        self.alarms: deque[tuple[float, str]] = deque(maxlen=100)
        self.refusals: dict[JobId, str] = {}  # why the last placement of a job was refused
        self.transactions = 0
        self.began_at = boottime()
        self.failed = asyncio.Event()  # something that a restart cannot mend by itself
        self.failure = ""
        self.settled = asyncio.Event()  # the store has answered once
        self.changed = asyncio.Condition()
        self.on_commit: list[Callable[[set[JobId], Sequence[Write]], None]] = []
        self.on_reserve: list[Callable[[Sequence[Write]], None]] = []
        self.on_refused: list[Callable[[JobId, str], None]] = []
        self.on_term: list[Callable[[Any], None]] = []
        self.send_nudge: Callable[[Nudge], None] = lambda nudge: None
        self._waiting: dict[int, asyncio.Future[JobId | None]] = {}
        self._token = 0
        self._ended: deque[tuple[float, JobId]] = deque()
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="dlsched-reader")
        self._writer = Writer(store, name, self._from_writer)
        self._ticking: asyncio.Task[None] | None = None
        self._replies: dict[tuple[NodeName, int, int], Reply] = {}

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to contend for the lead."""
        self._writer.start()
        self._ticking = asyncio.create_task(self._tick(), name="ticks")

    async def stop(self) -> None:
        """Stop deciding, let the transaction in flight end, close nothing of others."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await asyncio.to_thread(self._writer.stop)
        self._readers.shutdown(wait=True)
        self._fail_waiting(Unavailable("the daemon is stopping; ask again"))

    async def _tick(self) -> None:
        beat = self.state.timing.beat_s / 2
        while True:
            self.step(leader.Tick(boottime()))
            self._tidy()
            await asyncio.sleep(beat if self.leading else min(beat, 1.0))

    @property
    def leading(self) -> bool:
        """Whether this process decides."""
        return self.state.role is Role.LEADING

    @property
    def committed(self) -> Ledger:
        """What the database has."""
        return self.state.committed

    @property
    def reserved(self) -> Ledger:
        """What it will have."""
        return self.state.reserved

    def require_lead(self) -> None:
        """Refuse what only a leader with a database can do.

        Raises:
            Unavailable: in one line, why not now.
        """
        if self.store_down:
            raise Unavailable(f"cannot store: {self.store_down}")
        if not self.leading:
            raise Unavailable("this daemon does not lead (another does, or the database is away)")

    # -- steps -----------------------------------------------------------------------------------

    def step(self, event: leader.Event) -> None:
        """One event: the new state, its followers, its commands."""
        before = self.state
        self.state, commands = leader.step(before, event)
        now = boottime()
        writes = self._new_writes(before, commands)
        if writes:
            for heard in self.on_reserve:
                heard(writes)
        if before.in_flight is not None and isinstance(event, leader.Persisted):
            self._committed(before, now)
        for command in commands:
            self._carry_out(command)
        if before.role is not self.state.role:
            log.info("event=role role=%s epoch=%s", self.state.role.value, self.state.epoch)

    def _new_writes(
        self, before: leader.LeaderState, commands: Iterable[leader.Command]
    ) -> Sequence[Write]:
        """What this step has reserved: the queue before is the beginning of what came after."""
        if before.role is not Role.LEADING or self.state.role is not Role.LEADING:
            return ()
        sent: tuple[Write, ...] = ()
        for command in commands:
            if isinstance(command, leader.Persist) and command.number > before.number:
                sent = command.writes
        return (*sent, *self.state.queue)[len(before.queue) :]

    def _committed(self, before: leader.LeaderState, now: float) -> None:
        assert before.in_flight is not None
        if self.state.in_flight is before.in_flight:
            return  # of another transaction: rows alone change no ledger, so that says nothing
        self.transactions += 1
        writes = before.in_flight.writes
        if any(isinstance(w, Attach) and isinstance(w.row, RoundDone) for w in writes):
            faultpoint("after-round-commit-before-nudges")
        changed = self.table.observe(before.committed, self.state.committed, writes, now, wall())
        for job in changed:
            row = self.state.committed.jobs.get(job)
            if row is not None and row.status.is_terminal:
                self._ended.append((now, job))
        for heard in self.on_commit:
            heard(changed, writes)

    def _carry_out(self, command: leader.Command) -> None:
        match command:
            case leader.Persist() | leader.Confirm() | leader.Contend():
                self._writer.ask(command)
            case leader.SendReply(reply=reply):
                self._replies[reply.node, reply.incarnation, reply.sequence] = reply
            case leader.SendNudge(nudge=nudge):
                self.send_nudge(nudge)
            case leader.Answer():
                self._answer(command)
            case leader.Alarm(text=text):
                self.alarms.append((wall(), text))
                log.warning("event=alarm text=%r", text)
            case leader.Refused(job=job, reason=reason):
                self.refusals[job] = reason
                log.info("event=refused job=%s why=%r", job, reason)
                for heard in self.on_refused:
                    heard(job, reason)

    def _tidy(self) -> None:
        """Ended jobs leave memory when their time is over and no node tells of them."""
        now, due = boottime(), []
        while self._ended and now - self._ended[0][0] > REMEMBERED_S:
            due.append(self._ended.popleft()[1])
        if not due:
            return
        self.step(leader.ForgetAsked(now, tuple(due)))
        stay = [job for job in due if job in self.committed.jobs]
        self.table.forget(job for job in due if job not in self.committed.jobs)
        for job in due:
            self.refusals.pop(job, None)
        self._ended.extend((now, job) for job in stay)

    # -- the writer thread -------------------------------------------------------------------------

    def _from_writer(self, outcome: Outcome) -> None:
        self._loop.call_soon_threadsafe(self._store_said, outcome)

    def _store_said(self, outcome: Outcome) -> None:
        self.settled.set()
        if isinstance(outcome, StoreFailed):
            self._store_failed(outcome)
            return
        if self.store_down:
            log.warning("event=store-back was=%r", self.store_down)
            self.store_down = ""
        match outcome:
            case Written(event=event):
                self.step(event(boottime()))
            case TermBegun(asked_at=asked_at, loaded=loaded, outcomes=outcomes):
                self._begin_term(asked_at, loaded, outcomes)

    def _begin_term(self, asked_at: float, loaded: Any, outcomes: Any) -> None:
        now = boottime()
        self.step(leader.Elected(now, asked_at, loaded.ledger))
        self.outcomes = dict(outcomes)
        self.table.load(self.state.committed, loaded.jobs, now, wall())
        self._ended = deque(
            (now, job) for job, row in self.committed.jobs.items() if row.status.is_terminal
        )
        log.info(
            "event=term epoch=%s jobs=%s nodes=%s",
            self.state.epoch, len(self.committed.jobs), len(self.committed.nodes),
        )  # fmt: skip
        for heard in self.on_term:
            heard(loaded)

    def _store_failed(self, outcome: StoreFailed) -> None:
        if outcome.why != self.store_down:
            log.error("event=store-failed why=%r number=%s", outcome.why, outcome.number)
        self.store_down = outcome.why
        if outcome.fatal:
            self.failure = outcome.why
            self.failed.set()
        if outcome.number is not None:
            self.step(leader.PersistFailed(boottime(), outcome.number))
        self._fail_waiting(
            Unavailable(f"cannot store: {outcome.why}; its fate is unknown, ask again")
        )

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, event: Callable[[int], leader.Event]) -> JobId | None:
        """Step with an event that carries a token; returns when what it rests on is committed.

        Raises:
            DlschedError: in one line, why it was refused or that its fate is unknown.
        """
        self.require_lead()
        token, future = self.expect()
        try:
            self.step(event(token))
            return await future
        finally:
            self.give_up(token)

    def expect(self) -> tuple[int, asyncio.Future[JobId | None]]:
        """A token for an event, and what becomes of it."""
        self._token += 1
        future: asyncio.Future[JobId | None] = self._loop.create_future()
        self._waiting[self._token] = future
        token = self._token
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        return token, future

    def give_up(self, token: int) -> None:
        """Nobody waits for a token any more."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.cancel()

    async def attach(self, *rows: object) -> None:
        """Make rows durable."""
        await self.ask(lambda token: leader.AttachAsked(boottime(), rows, token))

    def note(self, *rows: object) -> None:
        """Make rows durable some time soon; nobody waits."""
        if self.leading and not self.store_down:
            self.step(leader.AttachAsked(boottime(), rows))

    def _answer(self, answer: leader.Answer) -> None:
        future = self._waiting.get(answer.token)
        if future is None or future.done():
            return
        if answer.unknown:
            future.set_exception(Unavailable("the lead was lost meanwhile; ask again"))
        elif answer.refused:
            future.set_exception(_refusal(answer.refused))
        else:
            future.set_result(answer.job)

    def _fail_waiting(self, error: DlschedError) -> None:
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)

    # -- nodes -------------------------------------------------------------------------------------

    async def hear(self, sync: Sync) -> Reply:
        """A node's sync; the reply to it.

        Raises:
            Unavailable: when there is nothing to say, or nobody to say it.
        """
        recalled: list[Any] = []
        asked: set[str] = set()
        while self.leading:
            known = self.state.reserved
            strange = [
                key.run_id
                for key in (*(h.key for h in sync.held or ()), *(e.key for e in sync.ended))
                if key.run_id not in known.runs
                and (sync.node, key.run_id) not in known.orphans
                and key.run_id not in asked
            ]
            if not strange:
                break
            asked.update(strange)
            recalled += await self.read(partial(self.store.run_lookup, strange))
        if not self.leading:
            raise Unavailable("this daemon does not lead")
        rows = tuple(recalled)
        self.step(leader.SyncArrived(boottime(), sync, rows))
        for job, run in rows:
            if run.is_over and job.job in self.committed.jobs and job.status.is_terminal:
                self._ended.append((boottime(), job.job))
        reply = self._replies.pop((sync.node, sync.incarnation, sync.sequence), None)
        self._replies.clear()
        if reply is None:
            raise Unavailable("nothing to say to this sync yet")
        faultpoint("before-reply")
        return reply

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, call: Callable[[], T]) -> T:
        """Read from the store in a reader thread.

        Raises:
            Unavailable: when it cannot be read now.
        """
        return await self._loop.run_in_executor(self._readers, call)


def _refusal(text: str) -> DlschedError:
    if text.startswith("Conflict"):
        return Conflict(text.removeprefix("Conflict: "))
    if text == "NotFound":
        return NotFound("no such job")
    return Refused(text)
