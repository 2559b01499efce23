"""The round of a world, written once: predict → choose → admit → decide → book.

Both worlds make a `Cycle` of their tables and call its steps; what they do before (see that time
has passed, that jobs have come and gone) and after (carry out what was decided) is their own.

Invariant: between two steps `ctx.active` are the rows that were admitted and have not ended, in
order of admission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.reservations import Reserved
from dlsched.core.context import Change, Mode, RoundContext
from dlsched.core.job_metrics import MetricBoard
from dlsched.core.round.steps import Parts, admit, choose, decide, predict
from dlsched.core.scheduling import Chooser
from dlsched.core.units import COMPLETED, FUTURE, HELD_BACK, WAITING, Status, Units

ORPHAN = Refused("Never", "waits for a job that was refused")
NO_ROWS: Rows = np.zeros(0, np.int64)

Replace = Callable[[Parts, Mapping[str, str]], Parts]


class Cycle:
    """The rounds of one world.

    Attributes:
        ctx: what parts see: one object for all rounds. `look` sets its time; each step brings
            `active` up to date before it asks a part.
        parts: the stages; a chooser may replace them.
        chosen: the parts that a chooser has installed, by stage.
        held_back: rows that admission did not let in when it was asked last, in order of arrival.
        refusals: the latest reason of each row that was refused something.
        refused: rows that admission refused for good, and their children, in order.
        board: what jobs report.
        decisions: how many decisions were made.
        has_news: when it was asked last, admission let rows in, or refused them, by a decision of
            its own.
        admitted: per row its place in the order of admission.
    """

    def __init__(
        self,
        ctx: RoundContext,
        parts: Parts,
        *,
        held_back: Rows = NO_ROWS,
        replace: Replace | None = None,
    ) -> None:
        """Begin with what is there.

        Args:
            ctx: the present; its `active` are the rows admitted before.
            parts: the stages.
            held_back: rows that admission held back before.
            replace: makes parts anew from those that a chooser names; None: choosers are not asked.
        """
        self.ctx = ctx
        self.parts = parts
        self.chosen: dict[str, str] = {}
        self.held_back = held_back
        self.refusals: dict[int, Refused] = {}
        self.refused: list[int] = []
        self.decisions = 0
        self.has_news = False
        self._replace = replace
        self._arrived: list[int] = []  # admission was not asked about them yet
        self._entered: list[int] = []  # admitted, and not yet in `ctx.active`
        self._left: list[int] = []  # ended, and still in `ctx.active`
        self._admissions = len(ctx.active)
        self.admitted: Ints = np.zeros(len(ctx.table), np.int64)
        self.admitted[ctx.active] = np.arange(self._admissions)
        self._children: dict[int, list[int]] = {}
        for row, parents in ctx.table.parents.items():
            for parent in parents:
                self._children.setdefault(parent, []).append(row)
        reported = parts.metrics.metrics if parts.metrics is not None else ()
        self.board = MetricBoard(ctx.table, (*reported, *parts.scheduling.metrics))

    # -- what the world says ----------------------------------------------------------------------

    def look(self, now: float, number: int, mode: Mode) -> RoundContext:
        """Bring the context up to date, for whichever part is asked next."""
        ctx = self.ctx
        ctx.now, ctx.number, ctx.mode = now, number, mode
        return ctx

    def arrive(self, rows: Sequence[int], since: Floats | None = None) -> None:
        """Rows are there; the next admission is asked about them.

        Args:
            rows: the rows.
            since: when each came, in seconds; None: now.
        """
        ctx = self.ctx
        ctx.table.since[rows] = ctx.now if since is None else since
        for row in rows:
            ctx.table.status[row] = HELD_BACK
            ctx.changes.append(Change("arrive", ctx.now, row))
        self._arrived.extend(rows)

    def leave(self, rows: Sequence[int]) -> None:
        """Rows have ended."""
        self._left.extend(rows)

    def enter(self, row: int) -> int:
        """A row is admitted; returns its place in the order of admission."""
        self.admitted[row] = place = self._admissions
        self._admissions += 1
        self._entered.append(row)
        return place

    def refuse_children(self, rows: Sequence[int]) -> None:
        """The children of rows that were refused for good are refused too."""
        for row in rows:
            for child in self._children.get(row, ()):
                if self.ctx.table.status[child] == FUTURE:
                    self._refuse_for_good(child, ORPHAN)

    def submitted_behind(self, rows: Sequence[int]) -> list[int]:
        """Rows that are submitted by now and wait for some others, also through further ones."""
        table, found, ahead = self.ctx.table, dict[int, None](), list(rows)
        while ahead:
            for child in self._children.get(ahead.pop(), ()):
                is_new = child not in found and table.status[child] == FUTURE
                if is_new and table.submit_time[child] <= self.ctx.now:
                    found[child] = None
                    ahead.append(child)
        return list(found)

    # -- what waits -------------------------------------------------------------------------------

    @property
    def active(self) -> Rows:
        """Rows admitted and not ended, in order of admission."""
        ctx = self.ctx
        if self._entered:
            ctx.active = np.concatenate([ctx.active, np.array(self._entered, np.int64)])
            self._entered.clear()
        if self._left:
            ctx.active = ctx.active[ctx.table.status[ctx.active] < COMPLETED]
            self._left.clear()
        return ctx.active

    @property
    def queue(self) -> Rows:
        """Rows that are not admitted yet, in order of arrival."""
        return np.concatenate([self.held_back, np.array(self._arrived, np.int64)])

    @property
    def has_queue(self) -> bool:
        """Does any row wait for admission?"""
        return bool(self._arrived) or len(self.held_back) > 0

    # -- the steps --------------------------------------------------------------------------------

    def predict(self, rows: Rows, true_work: Floats) -> Floats:
        """Ask the estimator for the seconds of work that rows need; NaN where it has no idea.

        `true_work` is what a replay knows of each; NaN elsewhere.

        Raises:
            PolicyFailed: the estimator raised or answered nonsense.
        """
        ctx = self._up_to_date()
        return predict(self.parts, Units(ctx.table, rows, ctx.now), true_work, ctx)

    def choose(self) -> None:
        """Let a chooser replace parts, before a full decision or when it has chosen none yet.

        Raises:
            PolicyFailed: it raised.
        """
        chooser = self.parts.scheduling
        if not isinstance(chooser, Chooser) or self._replace is None:
            return
        if self.ctx.mode == "fill" and chooser.has_chosen:
            return
        if not self.has_queue and not len(self.active):
            return
        chosen = choose(chooser, self.ctx)
        if chosen is not None:
            self.parts = self._replace(self.parts, chosen)
            self.chosen = {**self.chosen, **chosen}

    def admit(self) -> list[int]:
        """Let admission choose among the rows that wait for it; returns those that enter now.

        Raises:
            PolicyFailed: the part raised or answered nonsense.
        """
        table, now = self.ctx.table, self.ctx.now
        self.has_news = False
        if self.parts.admission.admits_all and not len(self.held_back):
            entering, self._arrived = self._arrived, []  # each when it came
        else:
            entering = self._ask_admission()
            table.since[entering] = now
        for row in entering:
            self.enter(row)
        table.status[entering] = WAITING
        table.admitted_at[entering] = table.since[entering]
        return entering

    def _ask_admission(self) -> list[int]:
        queue = self.queue
        self._arrived.clear()
        if not len(queue):
            return []
        ctx = self._up_to_date()
        enters, refused = admit(self.parts, Units(ctx.table, queue, ctx.now), ctx)
        stays = ~enters
        for row, why in refused.items():
            self.refusals[row] = why
            if why.reason == "Never":
                self._refuse_for_good(row, why)
                stays[queue == row] = False
        self.held_back = queue[stays]
        self.has_news = len(self.held_back) < len(queue)
        entering: list[int] = queue[enters].tolist()
        return entering

    def _refuse_for_good(self, row: int, why: Refused) -> None:
        self.ctx.table.status[row] = Status.REFUSED
        self.refusals[row] = why
        self.refused.append(row)
        self.refuse_children([row])

    def decide(self) -> Allocation:
        """Decide, and enter in the calendar what was planned ahead.

        The occupancy has the placements of the answer already; the world carries out the rest. A
        fill that changes nothing leaves no trace: how often a world looks for idle GPUs between
        two rounds decides nothing.

        Raises:
            PolicyFailed: a part raised or asked for what cannot be; nothing has changed then.
        """
        parts, ctx = self.parts, self._up_to_date()
        if self.board.metrics and parts.metrics is not None:
            parts.metrics.report(ctx.running, self.board, ctx)
            self.board.collect()
        if ctx.reserved is not None:
            self._keep_reservations(ctx.reserved)
        counts = ctx.mode == "full" or self.has_news
        allocation = decide(parts, ctx, counts=counts)
        if ctx.reserved is not None:
            self._tell_reservations(ctx.reserved, allocation)
        self.decisions += 1
        self.refusals.update(allocation.refused)
        if counts or not allocation.changes_nothing:
            ctx.changes.clear()
            self._book(allocation)
        return allocation

    def _keep_reservations(self, reserved: Reserved) -> None:
        """Give each active row the pool that reservations leave it now."""
        ctx = self.ctx
        table, rows, held = ctx.table, ctx.active, ctx.occupancy.held
        mine = [
            sum(1 << node for node in held[row].nodes) if row in held else 0
            for row in rows.tolist()
        ]
        table.pool[rows] = reserved.pools_at(
            ctx.now,
            reserved.without(table.pool[rows]),
            table.time_limit[rows],
            table.reservation[rows],
            mine,
        )

    def _tell_reservations(self, reserved: Reserved, allocation: Allocation) -> None:
        """Say why rows wait for reservations, and ask again when one begins or ends."""
        ctx = self.ctx
        moment = reserved.next_moment(ctx.now)
        allocation.wake_at = min(allocation.wake_at, moment)
        allocation.stable_until = min(allocation.stable_until, moment)
        table, pools, occupancy = ctx.table, ctx.pools, ctx.occupancy
        rows = ctx.waiting.rows
        base = reserved.without(table.pool[rows]).tolist()
        for row, before in zip(rows.tolist(), base, strict=True):
            pool = table.pool.item(row)
            if row in allocation.launched or pool == before:
                continue
            gang = table.gang.item(row)
            if occupancy.free_in(pools.nodes[pool]) >= gang:
                continue  # it waits for something else
            limit, own = table.time_limit.item(row), table.reservation.item(row)
            why = reserved.why(ctx.now, limit, own, before)
            if why is not None:
                allocation.refused[row] = Refused(*why)

    def _up_to_date(self) -> RoundContext:
        """The context with the rows that are active now."""
        self.ctx.active = self.active
        return self.ctx

    def _book(self, allocation: Allocation) -> None:
        """A row's new plan replaces its old one; maintenance, which is no row's, is added."""
        calendar = self.ctx.calendar
        for row in {booking.row for booking in allocation.future if booking.row >= 0}:
            calendar.cancel(row)
        for booking in allocation.future:
            calendar.book(booking)
