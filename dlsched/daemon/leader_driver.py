"""The main thread's core: events into the leader's step, its commands out, clients answered.

Invariant: only `step` changes `state`, and only the event loop's thread calls it. Followers see
changes in order, first as *reserved* and then as *committed*; every answer follows what is
committed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dlsched.core.errors import DlschedError, Unavailable
from dlsched.daemon.alarms import RecentAlarms
from dlsched.daemon.fair_readers import FairReaders
from dlsched.daemon.job_table import JobTable
from dlsched.daemon.nodes.agents import Agents
from dlsched.daemon.rpc_errors import Conflict, NotFound, NotPossible, NotTaken
from dlsched.daemon.writer import StoreAnswer, StoreFailed, TermBegun, Writer, Written
from dlsched.db.records import ClockMoved, Event, RoundDone
from dlsched.db.store import Store
from dlsched.protocol import leader
from dlsched.protocol.leader import Role
from dlsched.protocol.ledger import Attach, Changes, Job, Ledger, Run, Write
from dlsched.protocol.messages import JobId, NodeName, Reply, RunId, Sync
from dlsched.protocol.timing import Timing
from dlsched.rpc.identity import current_caller
from dlsched.system.clock import boottime, wall
from dlsched.system.fault_points import fault_point

log = logging.getLogger("dlsched.daemon")
T = TypeVar("T")
_SyncKey = tuple[NodeName, int, int]  # a node, the incarnation of its agent, and a number
TRANSACTION_S = 1.0  # in which more may come into the one in which a set clock is noted
CLOCK_SET_S = 5.0  # the wall clock was set if it differs by more at once; less is drift
SILENT_S = 5.0  # a database that is asked all the time is in trouble when it says nothing so long
REMEMBERED_S = 30.0  # an ended job stays in memory so long, for clients that wait and look


def new_run_id() -> RunId:
    """A random run id."""
    return RunId(secrets.token_hex(8))


class LedgerFollower:
    """What follows the ledger; each method does nothing unless a follower has its own."""

    def term_began(self, term: TermBegun) -> None:
        """Begin anew from what the database has: this process leads now."""

    def reserved(self, changes: Changes) -> None:
        """Follow changes of the reserved ledger."""

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Follow a committed transaction: its changes, and jobs whose rows or facts it changed."""

    def rows_to_store(self) -> Sequence[object]:
        """Rows that belong into the transaction that is sent now, with what was reserved for it."""
        return ()

    def placement_refused(self, job: JobId, why: str) -> None:
        """Learn that the leader refused to place a job."""


class LeaderDriver:
    """Drives the protocol's leader: its state, its database, and the clients that wait.

    Attributes:
        store: the database.
        name: of this daemon.
        state: of the protocol's leader.
        table: what users are shown of jobs.
        store_down: why nothing can be stored now; empty when it can.
        alarms: what the protocol found wrong lately.
        refusals: why the last placement of a job was refused.
        transactions: committed since this process began.
        may_stay: whether a job whose run fails may start again on its GPUs, as far as the ledger
            does not forbid it.
        power_off: switches a silent node off, if it can.
        began_at: when this process began, by `boottime`.
        failed: set when something went wrong that a restart may not mend; `failure` says what.
        settled: set when the store has answered once.
    """

    def __init__(self, store: Store, timing: Timing, name: str, agents: Agents) -> None:
        """Make a driver that does not contend for the lead yet.

        Args:
            store: the database.
            timing: the protocol's numbers.
            name: of this daemon.
            agents: of the nodes.
        """
        self.store = store
        self.name = name
        self.state = leader.LeaderState(name=name, timing=timing)
        self.table = JobTable()
        self.store_down = ""
        self.alarms = RecentAlarms()
        self.refusals: dict[JobId, str] = {}
        self.transactions = 0
        self.began_at = boottime()
        self._wall_ahead_s, self._looked_at = wall() - boottime(), boottime()  # at the clocks
        self.failed = asyncio.Event()
        self.failure = ""
        self.settled = asyncio.Event()
        self._agents = agents
        self.may_stay: Callable[[JobId], bool] = lambda job: True
        self.power_off: Callable[[leader.PowerOff], None] = lambda asked: None
        self._followers: list[LedgerFollower] = []
        self._waiting: dict[int, asyncio.Future[JobId | None]] = {}
        self._token = 0
        self._sent: leader.Persist | None = None  # the latest transaction, with followers' rows
        self._sent_at = 0.0  # the transaction in flight, in seconds since the boot
        self._ended: deque[tuple[float, JobId]] = deque()
        self._loop = asyncio.get_running_loop()
        self._readers = FairReaders()
        self._writer = Writer(store, name, self._from_writer)
        self._ticking: asyncio.Task[None] | None = None
        self._replies: dict[_SyncKey, asyncio.Future[Reply | None]] = {}  # that syncs wait for

    def follow(self, follower: LedgerFollower) -> None:
        """Add a follower; followers learn of a change in the order in which they were added."""
        self._followers.append(follower)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to contend for the lead."""
        self._writer.start()
        self._ticking = asyncio.create_task(self._tick(), name="ticks")

    async def stop(self) -> None:
        """Stop deciding, and let the transaction in flight end; the store stays open."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await asyncio.to_thread(self._writer.stop)
        self._readers.close()
        self._fail_waiting(Unavailable("the daemon is stopping; ask again"))

    async def _tick(self) -> None:
        while True:
            self.step(leader.Tick(boottime()))
            self._tidy()
            self._follow_wall_clock()
            await asyncio.sleep(self.state.timing.tick_s)

    @property
    def leading(self) -> bool:
        """Whether this process leads."""
        return self.state.role is Role.LEADING

    @property
    def store_trouble(self) -> str:
        """Why the database does not store now, or has not answered for a while; empty: it does."""
        if self.store_down:
            return f"cannot store: {self.store_down}"
        asked_at = self.state.confirmed_at
        if self.state.in_flight is not None:
            asked_at = min(asked_at, self._sent_at)
        silent = boottime() - asked_at
        if self.leading and silent > SILENT_S:
            return f"the database has not answered for {silent:.0f} s"
        return ""

    @property
    def committed(self) -> Ledger:
        """The ledger as the database has it."""
        return self.state.committed

    @property
    def reserved(self) -> Ledger:
        """The ledger as the database will have it."""
        return self.state.reserved

    def require_lead(self) -> None:
        """Refuse a request that only a leader with a database can serve.

        Raises:
            NotTaken: one line that says why not now.
        """
        if self.store_down:
            raise NotTaken(f"cannot store: {self.store_down}")
        if not self.leading:
            raise NotTaken("this daemon does not lead (another does, or the database is away)")

    # -- steps -----------------------------------------------------------------------------------

    def step(self, event: leader.Event) -> None:
        """Take one event: change the state, tell the followers, carry the commands out."""
        before = self.state
        self.state, commands = leader.step(before, event)
        now = boottime()
        if changes := Changes(self._new_writes(before, commands)):
            for follower in self._followers:
                follower.reserved(changes)
        if before.in_flight is not None and isinstance(event, leader.Persisted):
            self._committed(before, now)
        for command in commands:
            self._carry_out(command)
        if self._replies and self.state.owed is not before.owed:
            for key in [key for key in self._replies if not self._owes(key)]:
                self._reply(key, None)
        if self.state.in_flight is not before.in_flight:
            self._sent_at = now
        if self.state.alarms != before.alarms:
            self.alarms.follow(self.state.alarms, wall())
        if before.role is not self.state.role:
            log.info("event=role role=%s epoch=%s", self.state.role.value, self.state.epoch)

    def _new_writes(
        self, before: leader.LeaderState, commands: Iterable[leader.Command]
    ) -> Sequence[Write]:
        """The changes that a step has reserved, which follow those that were queued before it."""
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
            return  # the answer is about another transaction
        self.transactions += 1
        changes = Changes(self._with_rows(before.in_flight).writes)
        if changes.of(RoundDone):
            fault_point("after-round-commit-before-nudges")
        changed = self.table.observe(before.committed, self.state.committed, changes, now, wall())
        for job in changed:
            row = self.state.committed.jobs.get(job)
            if row is not None and row.status.is_terminal:
                self._ended.append((now, job))
        for follower in self._followers:
            follower.committed(changed, changes)

    def _with_rows(self, asked: leader.Persist) -> leader.Persist:
        """A transaction with its followers' rows; the same ones when it is sent again."""
        sent = self._sent
        if sent is None or (sent.epoch, sent.number) != (asked.epoch, asked.number):
            rows = (row for follower in self._followers for row in follower.rows_to_store())
            sent = replace(asked, writes=(*asked.writes, *map(Attach, rows)))
            self._sent = sent
        return sent

    def _carry_out(self, command: leader.Command) -> None:
        match command:
            case leader.Persist():
                self._writer.ask(self._with_rows(command))
            case leader.Confirm() | leader.Contend():
                self._writer.ask(command)
            case leader.SendReply(reply=reply):
                self._reply((reply.node, reply.incarnation, reply.sequence), reply)
            case leader.SendNudge(nudge=nudge):
                self._agents.nudge(nudge)
            case leader.PowerOff():
                self.power_off(command)
            case leader.Answer():
                self._answer(command)
            case leader.Alarm(text=text, lasts=lasts):
                nodes = self.state.committed.nodes
                node = next((w for w in text.replace(":", " ").split() if w in nodes), "")
                self.alarms.raised(text, wall(), lasts=lasts, node=node)
                log.warning("event=alarm text=%r", text)
            case leader.PlacementRefused(job=job, reason=reason):
                self.refusals[job] = reason
                log.info("event=refused job=%s why=%r", job, reason)
                for follower in self._followers:
                    follower.placement_refused(job, reason)

    def _tidy(self) -> None:
        """Drop ended jobs from memory when their time is over and no node reports them."""
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

    def _from_writer(self, answer: StoreAnswer) -> None:
        self._loop.call_soon_threadsafe(self._take_answer, answer)

    def _take_answer(self, answer: StoreAnswer) -> None:
        self.settled.set()
        if isinstance(answer, StoreFailed):
            self._store_failed(answer)
            return
        if self.store_down:
            log.warning("event=store-back was=%r", self.store_down)
            self.store_down = ""
        match answer:
            case Written(event=event):
                self.step(event(boottime()))
            case TermBegun():
                self._begin_term(answer)

    def _begin_term(self, term: TermBegun) -> None:
        now, loaded = boottime(), term.loaded
        self.step(leader.Elected(now, term.asked_at, loaded.ledger))
        self.table.load(self.state.committed, loaded.jobs, now, wall())
        self._ended = deque(
            (now, job) for job, row in self.committed.jobs.items() if row.status.is_terminal
        )
        log.info(
            "event=term epoch=%s jobs=%s nodes=%s",
            self.state.epoch, len(self.committed.jobs), len(self.committed.nodes),
        )  # fmt: skip
        for follower in self._followers:
            follower.term_began(term)

    def _store_failed(self, failed: StoreFailed) -> None:
        if failed.why != self.store_down:
            log.error("event=store-failed why=%r number=%s", failed.why, failed.number)
        self.store_down = failed.why
        if failed.fatal:
            self.failure = failed.why
            self.failed.set()
        if failed.number is not None:
            self.step(leader.PersistFailed(boottime(), failed.number))
        self._fail_waiting(
            Unavailable(f"cannot store: {failed.why}; its fate is unknown, ask again")
        )

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, event: Callable[[int], leader.Event]) -> JobId | None:
        """Step with an event that carries a token; returns when its changes are committed.

        Raises:
            DlschedError: one line that says why it was refused, or that its outcome is unknown.
        """
        self.require_lead()
        token, future = self.expect()
        try:
            self.step(event(token))
            return await future
        finally:
            self.give_up(token)

    def expect(self) -> tuple[int, asyncio.Future[JobId | None]]:
        """A token for an event, and a future with the event's answer."""
        self._token += 1
        future: asyncio.Future[JobId | None] = self._loop.create_future()
        self._waiting[self._token] = future
        token = self._token
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        return token, future

    def give_up(self, token: int) -> None:
        """Stop waiting for a token's answer."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.cancel()

    async def attach(self, *rows: object) -> None:
        """Make rows durable, and all that was decided before."""
        await self.ask(lambda token: leader.AttachAsked(boottime(), rows, token))

    def _follow_wall_clock(self) -> None:
        """Have the times of what is live move with the wall clock where it was set."""
        if self.store_down:
            return  # the next look will find it
        now = boottime()
        ahead_s = wall() - now
        moved_s, looked_s = ahead_s - self._wall_ahead_s, now - self._looked_at
        if self.leading and abs(moved_s) >= CLOCK_SET_S:  # a standby has nothing that moves
            text = f"this daemon's clock was set by {moved_s:+.0f} s"
            log.warning("event=clock-set by_s=%.3f", moved_s)
            at = now + ahead_s
            until = math.inf if moved_s > 0 else at + TRANSACTION_S
            row = ClockMoved(by_s=moved_s, since=at - looked_s, until=until)
            self.note(row, Event(at=at, kind="clock", actor="daemon", text=text))
        self._wall_ahead_s, self._looked_at = ahead_s, now

    def note(self, *rows: object) -> None:
        """Make rows durable soon, without waiting for it."""
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
        """Take a node's sync; returns the reply to it.

        The first sync of an agent registers its node. It is taken once more when that is durable,
        so that its reply has the node's orders and its lease.

        Raises:
            Unavailable: when this daemon does not lead, or there is no reply.
        """
        reply = await self._take_sync(sync)
        if reply is None and sync.inventory is not None:
            await self.attach()
            reply = await self._take_sync(sync)
        if reply is None:
            raise Unavailable("nothing to say to this sync")
        fault_point("before-reply")
        return reply

    async def _take_sync(self, sync: Sync) -> Reply | None:
        """Step with a sync; returns the reply, if there is one yet.

        Raises:
            Unavailable: when this daemon does not lead.
        """
        recalled: list[tuple[Job, Run]] = []
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
            recalled += await self._recalled(strange)
        if not self.leading:
            raise Unavailable("this daemon does not lead")
        rows = tuple(recalled)
        key = (sync.node, sync.incarnation, sync.sequence)
        waiting: asyncio.Future[Reply | None] = self._loop.create_future()
        self._replies[key] = waiting
        self.step(leader.SyncArrived(boottime(), sync, rows, self._next_runs(sync)))
        if not self._owes(key):
            self._reply(key, None)
        for job, run in rows:
            if run.is_over and job.job in self.committed.jobs and job.status.is_terminal:
                self._ended.append((boottime(), job.job))
        return await waiting

    def _owes(self, key: _SyncKey) -> bool:
        """Whether the reply to a sync follows, when a transaction is durable."""
        owed = self.state.owed.get(key[0])
        return owed is not None and key[1:] == (owed.sync.incarnation, owed.sync.sequence)

    def _reply(self, key: _SyncKey, reply: Reply | None) -> None:
        """Give a sync its reply; None: there is none, or it has one."""
        waiting = self._replies.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    async def _recalled(self, runs: list[RunId]) -> list[tuple[Job, Run]]:
        """Read runs that have left memory, each with its job, and have the jobs' facts again."""
        rows = await self.read(partial(self.store.run_lookup, runs))
        missing = [job.job for job, _ in rows if job.job not in self.committed.jobs]
        if missing:
            for stored in await self.read(partial(self.store.jobs, missing)):
                self.table.recall(stored.facts)
        return rows

    def _next_runs(self, sync: Sync) -> dict[JobId, RunId]:
        """Random run ids for the jobs of ended runs that may start again on their GPUs."""
        runs = [self.reserved.runs.get(end.key.run_id) for end in sync.ended]
        jobs = {run.key.job for run in runs if run is not None and not run.is_over}
        return {job: new_run_id() for job in jobs if self.may_stay(job)}

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, call: Callable[[], T]) -> T:
        """Read from the store in a reader thread, in the turn of the user whose call this is.

        Raises:
            Unavailable: when it cannot be read now.
        """
        return await self._readers.read(call, current_caller())


def _refusal(text: str) -> DlschedError:
    if text.startswith("Conflict"):
        return Conflict(text.removeprefix("Conflict: "))
    if text == "NotFound":
        return NotFound("no such job")
    return NotPossible(text)
