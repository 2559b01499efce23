"""From X to leases, round by round: whoever is furthest behind its share goes first.

With f_ij = the part that job i has had of all time given on type j in this window, its priority
there is X_ij / f_ij (Gavel, section 5). One queue over all types; each job runs in one place.

Beyond the paper: whoever has no share yet may use what is idle at once; what a type has left goes
first to those who are behind elsewhere; nobody sits on a slow type while a faster one idles; who
keeps its type keeps its GPUs; time is counted as it was received, whatever happened in between; a
new X takes nobody's history away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gavel.books import ALONE, Books
from dlsched.policies.scheduling.gavel.grounds import Grounds
from dlsched.policies.scheduling.gavel.question import speeds_of
from dlsched.policies.scheduling.gavel.time_shares import Source

__all__ = ["Rounds"]

WORTH_MOVING = 1.01  # times as fast an idle type must be for who has a seat elsewhere
WITHOUT_ROUNDS_S = 360.0  # how often leases are looked at where every change is a decision


@dataclass(slots=True)
class Seats:
    """Who is to run where.

    Attributes:
        chosen: (type, partner) by row, in the order of choice.
        room: GPUs still free of each type.
        fixed: rows that stay as they are, whatever X says.
    """

    room: list[int]
    fixed: set[int]
    chosen: dict[int, tuple[int, int]] = field(default_factory=dict)


class Rounds:
    """The mechanism, and what it remembers from round to round."""

    def __init__(self, source: Source, *, resolve_s: float = 0.0, window_s: float = 1920.0) -> None:
        """Choose how often things are done.

        Args:
            source: where X comes from.
            resolve_s: seconds between two X, at least.
            window_s: seconds after which received time is counted anew.
        """
        self._source = source
        self._resolve_s, self._window_s = resolve_s, window_s
        self._grounds = Grounds()
        self._books = Books(())
        self._given: Floats = np.zeros(0)
        self._dirty = False
        self._solved_at = -np.inf
        self._window_from = -np.inf
        self._looked_at = 0.0

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round, or a fill of idle GPUs between two."""
        rows = np.sort(rows)
        head_start = (ctx.round_length or WITHOUT_ROUNDS_S) / 2
        self._look(rows, ctx, head_start)
        if ctx.mode == "full":
            if self._dirty and ctx.now - self._solved_at >= self._resolve_s and len(rows):
                self._solve(ctx, head_start)
            if ctx.now - self._window_from >= self._window_s:
                self._begin_window(ctx, head_start)
        can = self._can(ctx)
        seats = self._taken(ctx, walk)
        queue = self._entitled(seats, can, ctx)
        self._leftovers(seats, can, ctx)
        self._carry_out(seats, queue, can, ctx, walk)
        if not ctx.round_length and len(rows):
            walk.wake_at(ctx.now + WITHOUT_ROUNDS_S)

    # -- books ------------------------------------------------------------------------------------

    def _look(self, rows: Rows, ctx: RoundContext, head_start: float) -> None:
        """Credit what was received, let newcomers in and those who ended out."""
        changed, books = self._grounds.look(ctx), self._books
        if books.types != self._grounds.types:
            books = self._books = books.with_types(self._grounds.types, head_start)
            self._given = np.zeros(len(books.types))
        still_here = np.isin(books.rows, rows)
        if not still_here.all():
            books.align(books.rows[still_here], head_start)
            changed = True
        held = Units(ctx.table, books.rows, ctx.now).held_s
        self._given += books.credit(held, ctx.now - self._looked_at)
        self._looked_at = ctx.now
        newcomers = len(rows) - len(books)
        if books.align(rows, head_start):
            self._given += newcomers * head_start
            books.held = Units(ctx.table, rows, ctx.now).held_s
            changed = True
        adapted = any(change.kind == "adapt" for change in ctx.changes)
        self._dirty = self._dirty or changed or adapted

    def _solve(self, ctx: RoundContext, head_start: float) -> None:
        shares = self._source(self._books.rows, self._grounds.types, ctx)
        self._books.share_out(shares, head_start)
        self._dirty = False
        self._solved_at = ctx.now

    def _begin_window(self, ctx: RoundContext, head_start: float) -> None:
        self._books.begin_anew(head_start)
        lines = len(self._books) + len(self._books.first)
        self._given = np.full(len(self._books.types), lines * head_start)
        self._window_from = ctx.now

    def _can(self, ctx: RoundContext) -> Floats:
        """Steps/s where a job may run, 0 elsewhere, [line, type]."""
        rows = self._books.rows
        speed = speeds_of(rows, self._grounds.types, ctx)
        return np.where(self._grounds.open_to(rows, ctx), speed, 0.0)

    # -- who runs where ---------------------------------------------------------------------------

    def _taken(self, ctx: RoundContext, walk: Walk) -> Seats:
        """Room, if all who may be moved were; those who may not keep their seats."""
        occupancy, grounds = ctx.occupancy, self._grounds
        seats = Seats(room=grounds.free(ctx), fixed=set())
        running = np.fromiter(occupancy.held, np.int64, len(occupancy.held))
        protected = walk.is_protected(running).tolist()
        for row, is_protected in zip(running.tolist(), protected, strict=True):
            nodes = occupancy.held[row].nodes
            kinds = {grounds.kind_of(node) for node in nodes}
            drains = any(occupancy.draining >> node & 1 for node in nodes)
            if ctx.mode == "fill" or is_protected or drains:
                seats.fixed.add(row)
            elif len(kinds) == 1:
                others = occupancy.beside.get(row)
                if others is None or row < others[0]:
                    seats.room[kinds.pop()] += int(ctx.table.gpus_now[row])
        return seats

    def _entitled(self, seats: Seats, can: Floats, ctx: RoundContext) -> list[int]:
        """Seat those with a share, by priority; returns the rows with one, best first."""
        books = self._books
        alone = len(books)
        x = np.concatenate([books.x, books.pair_x])
        got = np.concatenate([books.got, books.pair_got])
        both = np.minimum(can[books.lines(books.first)], can[books.lines(books.second)])
        may = (x > 0) & (np.concatenate([can, both]) > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            priority = np.where(may, x * self._given / got, 0.0)
        owed = np.zeros(priority.shape)
        owed[:alone] = books.owed
        entry, kind = np.nonzero(may)
        order = np.lexsort((entry, -owed[entry, kind], -priority[entry, kind]))
        one = np.concatenate([books.rows, books.first])
        other = np.concatenate([np.full(alone, ALONE), books.second])
        gang: list[int] = ctx.table.gang[one].tolist()
        one_of, other_of = one.tolist(), other.tolist()
        queue: dict[int, None] = {}
        entries, kinds = entry[order].tolist(), kind[order].tolist()
        chosen, room, fixed = seats.chosen, seats.room, seats.fixed
        for place, where in zip(entries, kinds, strict=True):
            row, partner = one_of[place], other_of[place]
            queue[row] = None
            if row in chosen or row in fixed or gang[place] > room[where]:
                continue
            if partner != ALONE:
                queue[partner] = None
                if partner in chosen or partner in fixed:
                    continue
                chosen[partner] = (where, row)
            chosen[row] = (where, partner)
            room[where] -= gang[place]
        return list(queue)

    def _leftovers(self, seats: Seats, can: Floats, ctx: RoundContext) -> None:
        """What is left goes to whoever is most behind, then to newcomers, where each is fastest."""
        if not any(seats.room):
            return
        for row, wishes in self._by_need(seats, can, ctx):
            gang = int(ctx.table.gang[row])
            for kind in wishes:
                if gang <= seats.room[kind]:
                    seats.chosen[row] = (kind, ALONE)
                    seats.room[kind] -= gang
                    break
            if not any(seats.room):
                return
        self._upgrade(seats, can, ctx)

    def _upgrade(self, seats: Seats, can: Floats, ctx: RoundContext) -> None:
        """Nobody sits on a slow type while a faster one idles: the largest gain moves first."""
        alone = [row for row, (_, partner) in seats.chosen.items() if partner == ALONE]
        rows = np.sort(np.array(alone, np.int64))
        if not rows.size:
            return
        speed = can[self._books.lines(rows)]
        kinds = np.array([seats.chosen[row][0] for row in rows.tolist()], np.int64)
        now = speed[np.arange(len(rows)), kinds]
        gain = np.where(np.array(seats.room) > 0, speed / now[:, None], 0.0)
        line, kind = np.nonzero(gain > WORTH_MOVING)
        order = np.lexsort((kind, line, -gain[line, kind]))
        moved: set[int] = set()
        for place in order.tolist():
            row, where = int(rows[line[place]]), int(kind[place])
            gang = int(ctx.table.gang[row])
            if row in moved or gang > seats.room[where]:
                continue
            moved.add(row)
            seats.room[seats.chosen[row][0]] += gang
            seats.room[where] -= gang
            seats.chosen[row] = (where, ALONE)

    def _by_need(self, seats: Seats, can: Floats, ctx: RoundContext) -> list[tuple[int, list[int]]]:
        """Rows without a seat, most behind first, with the types where they can run.

        The type on which a row runs comes first, then the fastest.
        """
        books = self._books
        owed = np.where(books.x.any(axis=1), books.owed.sum(axis=1), -np.inf)
        order = np.lexsort((np.arange(len(books)), -owed))
        free = np.array(
            [r not in seats.chosen and r not in seats.fixed for r in books.rows.tolist()]
        )
        lines = order[free[order]] if len(order) else order
        wishes = np.argsort(-can[lines], axis=1, kind="stable").tolist()
        found = []
        for line, kinds in zip(lines.tolist(), wishes, strict=True):
            row, now = int(books.rows[line]), int(books.kind[line])
            runs = row in ctx.occupancy.held
            wanted = [kind for kind in kinds if can[line, kind] > 0]
            if runs and now in wanted:
                wanted = [now, *(kind for kind in wanted if kind != now)]
            found.append((row, wanted))
        return found

    # -- the walk ---------------------------------------------------------------------------------

    def _carry_out(
        self, seats: Seats, queue: list[int], can: Floats, ctx: RoundContext, walk: Walk
    ) -> None:
        """Make it so; whom the placement refuses gets what is left in the end."""
        occupancy = ctx.occupancy
        stays = {
            row for row in occupancy.held if row in seats.fixed or self._stays(row, seats, ctx)
        }
        for row in [row for row in occupancy.held if row not in stays]:
            walk.suspend(row)
        rank = {row: place for place, row in enumerate(queue)}
        late = len(rank)
        starts = [row for row in seats.chosen if row not in occupancy.held]
        starts.sort(key=lambda row: -int(ctx.table.gang[row]))
        for row in starts:
            kind, partner = seats.chosen[row]
            if row in occupancy.held:
                continue
            if partner in occupancy.held and seats.chosen[partner] == (kind, row):
                walk.share(row, partner)
                continue
            placed = walk.place(row, nodes=self._grounds.nodes[kind])
            if isinstance(placed, Refused) and placed.reason != "Quota":
                weaker = [
                    other
                    for other in stays
                    if other not in seats.fixed
                    and seats.chosen[other][0] == kind
                    and rank.get(other, late) > rank.get(row, late)
                ]
                weaker.sort(key=lambda other: (-rank.get(other, late), -other))
                self._push(row, kind, weaker, stays, walk)
        self._fill(can, seats, ctx, walk)
        self._note(ctx)

    def _stays(self, row: int, seats: Seats, ctx: RoundContext) -> bool:
        """Does it run where it is to run, beside whom it is to?"""
        seat = seats.chosen.get(row)
        if seat is None:
            return False
        occupancy = ctx.occupancy
        if {self._grounds.kind_of(node) for node in occupancy.held[row].nodes} != {seat[0]}:
            return False
        beside = occupancy.beside.get(row, ())
        if seat[1] == ALONE:
            # of two that part, the first keeps the GPUs
            return not beside or not any(
                other < row and self._keeps_gpus(other, seats, ctx) for other in beside
            )
        return not beside or beside == (seat[1],)

    def _keeps_gpus(self, row: int, seats: Seats, ctx: RoundContext) -> bool:
        seat = seats.chosen.get(row)
        nodes = ctx.occupancy.held[row].nodes
        return seat is not None and self._grounds.kind_of(nodes[0]) == seat[0]

    def _push(self, row: int, kind: int, weaker: list[int], stays: set[int], walk: Walk) -> None:
        """Make room where counting was right and the placement is particular, or undo it."""
        start, pushed = walk.mark(), []
        for other in weaker:
            if walk.occupancy.beside.get(other):
                continue
            walk.suspend(other)
            pushed.append(other)
            if not isinstance(walk.place(row, nodes=self._grounds.nodes[kind]), Refused):
                stays.difference_update(pushed)
                return
        walk.rollback(start)

    def _fill(self, can: Floats, seats: Seats, ctx: RoundContext, walk: Walk) -> None:
        """Whoever still waits may have what is still free; says why it does not."""
        held = ctx.occupancy.held
        seats.chosen = {row: seat for row, seat in seats.chosen.items() if row in held}
        waiting = [(row, kinds) for row, kinds in self._by_need(seats, can, ctx) if row not in held]
        free = self._grounds.free(ctx)
        for row, kinds in waiting:
            gang = int(ctx.table.gang[row])
            refused = Refused("Priority", "others are further behind their share of time")
            if not kinds:  # no type has room for the whole gang: a mix may
                placed = walk.place(row) if gang <= sum(free) else None
                if isinstance(placed, Refused) or placed is None:
                    walk.refuse(row, placed or refused)
                else:
                    free = self._grounds.free(ctx)
                continue
            for kind in kinds:
                if gang > free[kind]:
                    continue
                placed = walk.place(row, nodes=self._grounds.nodes[kind])
                if not isinstance(placed, Refused):
                    free[kind] -= gang
                    break
                refused = placed
            else:
                walk.refuse(row, refused)

    def _note(self, ctx: RoundContext) -> None:
        """What is in force from now on."""
        beside, kind_of = ctx.occupancy.beside, self._grounds.kind_of
        seats = {}
        for row, placement in ctx.occupancy.held.items():
            others = beside.get(row)
            seats[row] = (kind_of(placement.nodes[0]), others[0] if others else ALONE)
        self._books.note(seats)

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones; whoever has none has ended."""
        self._books.rename(place)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        return {
            "books": self._books.state_dict(),
            "given": self._given.tolist(),
            "dirty": self._dirty,
            "solved_at": self._solved_at,
            "window_from": self._window_from,
            "looked_at": self._looked_at,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._books = Books.of_state(state["books"])
        self._given = np.array(state["given"], np.float64)
        self._dirty = bool(state["dirty"])
        self._solved_at = float(state["solved_at"])
        self._window_from = float(state["window_from"])
        self._looked_at = float(state["looked_at"])
