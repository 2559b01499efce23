"""Following a ranking: from an order to grants, by its misfit and rebuild rules.

A static order whose placement cannot fail is decided by counting, in a few vector operations;
everything else tries row by row. Both give the same selection (a test holds them against each
other).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlsched.core.allocation import Ranking, Refused
from dlsched.core.arrays import Bools, Rows
from dlsched.core.gpu_request import GpuRequest
from dlsched.core.units import RUNNING, Units
from dlsched.core.walk.counting import choose_by_count, prefix_by_count
from dlsched.core.walk.room_under_limits import OVER_LIMIT
from dlsched.core.walk.walk import Walk

ANYWHERE = -1  # every node, as bits


def follow(walk: Walk, units: Units, ranking: Ranking) -> None:
    """Turn an order of units into grants; where the walk may not preempt, of waiting ones only."""
    walk.wake_at(ranking.wake_at)
    walk.stable_until(ranking.stable_until)
    rows = units.rows[ranking.order]
    if walk.claims is not None:
        rows = walk.claims.ordered(rows)
    walk.ranked(rows)
    running = walk.table.status[rows] == RUNNING
    stop = ranking.misfit == "stop"
    if not walk.may_preempt:
        some_run = np.count_nonzero(running) > 0  # not where only waiting rows were ranked
        _fill(walk, rows[~running] if some_run else rows, stop=ranking.misfit != "skip")
    elif ranking.misfit == "tail-preempt":
        _preempt_from_tail(walk, rows, running)
    elif ranking.rebuild == "full":
        rows, running = _protected_first(walk, rows, running)
        _place_anew(walk, rows, running, stop=stop)
    elif ranking.rebuild == "counted":
        rows, running = _protected_first(walk, rows, running)
        _place_counted(walk, rows, running, stop=stop)
    else:
        rows, running = _protected_first(walk, rows, running)
        if walk.counting_decides:
            _rebuild_by_count(walk, rows, running, stop=stop)
        else:
            _rebuild_by_trying(walk, rows, stop=stop)


def _protected_first(walk: Walk, rows: Rows, running: Bools) -> tuple[Rows, Bools]:
    """Rows that may not be preempted yet go first; ask again when the first of them may be."""
    if walk.ctx.min_run <= 0 or not running.any():
        return rows, running
    behind = ~(running & walk.is_protected(rows))
    order = np.argsort(behind, kind="stable")
    until = walk.ctx.kept_since(rows[~behind]) + walk.ctx.min_run
    if until.size and not running.all():
        walk.wake_at(float(until.min()))
    return rows[order], running[order]


def _by_pool(walk: Walk, rows: Rows) -> Sequence[tuple[int, Rows | slice]]:
    """The positions of each pool's rows, keeping their order."""
    if walk.ctx.pools.whole:
        return [(0, slice(None))]  # all of them, and nothing is copied
    pools = walk.table.pool[rows]
    return [(int(pool), np.flatnonzero(pools == pool)) for pool in np.unique(pools)]


def _fill(walk: Walk, rows: Rows, *, stop: bool) -> None:
    """Give free GPUs to waiting rows in order; no row is preempted."""
    if not rows.size:
        return
    if walk.counting_decides:
        by_pool = _by_pool(walk, rows)
        fits = _fitting(walk, rows, {pool: walk.free_gpus(pool) for pool, _ in by_pool}, stop=stop)
        for _, where in by_pool:
            walk.place_fitting(rows[where][fits[where]])
        return
    if walk.limits is not None:
        rows = rows[walk.within_limits(rows)]
    misfits = _Misfits(walk, stop=stop)
    for row in _entitled_first(walk, rows).tolist():
        if misfits.rule_out(row):
            continue
        placed = walk.place(row)
        if isinstance(placed, Refused):
            walk.refuse(row, placed)
            misfits.add(row, placed)
            if misfits.rules_out_all:
                break
        if not walk.occupancy.free_total and walk.claims is None:
            break


def _fitting(walk: Walk, rows: Rows, capacity: Mapping[int, int], *, stop: bool) -> Bools:
    """Which rows of an order fit into the GPUs of their pools, and under limits, by count alone."""
    gangs = walk.table.gang[rows]
    if walk.limits is not None:  # a holder's limit is one over all pools
        running = walk.table.status[rows] == RUNNING
        return walk.limits.chosen_by_count(rows, running, gangs, capacity, stop=stop)
    found = np.zeros(len(rows), np.bool_)
    choose = prefix_by_count if stop else choose_by_count
    for pool, where in _by_pool(walk, rows):
        found[where] = choose(gangs[where], capacity[pool])
    return found


def _place_anew(walk: Walk, rows: Rows, running: Bools, *, stop: bool) -> None:
    """Empty the cluster, then give it out in order; no row has a claim to its old GPUs."""
    if walk.host_sharing is not None and not stop and walk.host_sharing.serve_anew(rows.tolist()):
        return
    kept = running & walk.is_protected(rows)
    for row in rows[running & ~kept].tolist():
        if walk.is_victim(row, ANYWHERE):
            walk.take_back(row)
    walk.forget_claims()
    _fill(walk, rows[~kept], stop=stop)


def _rebuild_by_count(walk: Walk, rows: Rows, running: Bools, *, stop: bool) -> None:
    """Select by counting; then the others leave and the newly selected come."""
    chosen = _chosen_by_count(walk, rows, stop=stop)
    for row in rows[running & ~chosen][::-1].tolist():
        walk.take_back(row)
    walk.place_fitting(rows[chosen & ~running])


def _place_counted(walk: Walk, rows: Rows, running: Bools, *, stop: bool) -> None:
    """As `_rebuild_by_count`, where a selected row may find no room for its shape all the same."""
    chosen = _chosen_by_count(walk, rows, stop=stop)
    for row in rows[running & ~chosen].tolist():
        walk.take_back(row)
    for row in rows[chosen & ~running].tolist():
        placed = walk.place(row)
        if isinstance(placed, Refused):
            walk.refuse(row, placed)


def _chosen_by_count(walk: Walk, rows: Rows, *, stop: bool) -> Bools:
    """Which rows of an order fit if nothing but the number of GPUs counted."""
    held = walk.table.gpus_now[rows]  # those that wait hold 0
    capacity = {
        pool: walk.free_gpus(pool) + int(held[where].sum()) for pool, where in _by_pool(walk, rows)
    }
    return _fitting(walk, rows, capacity, stop=stop)


def _rebuild_by_trying(walk: Walk, rows: Rows, *, stop: bool) -> None:
    """Row by row: a running row stays, a waiting one may push out those ranked after it.

    With `stop`, running rows behind a misfit leave, as they would in a rebuild from empty.
    """
    if walk.limits is not None:
        rows = rows[walk.within_limits(rows)]
    ordered: list[int] = _entitled_first(walk, rows).tolist()
    misfits = _Misfits(walk, stop=stop)
    running = [place for place, row in enumerate(ordered) if row in walk.occupancy.held]
    for position, row in enumerate(ordered):
        if row in walk.occupancy.held:
            if stop and misfits.rule_out(row) and walk.is_victim(row, ANYWHERE):
                walk.take_back(row)
            continue
        if misfits.rule_out(row):
            continue
        before = len(walk.suspended)
        refusal = _place_or_push(walk, row, ordered, position, running)
        if refusal is None:
            if len(walk.suspended) != before:
                misfits.reopen()
        else:
            walk.refuse(row, refusal)
            misfits.add(row, refusal)


def _place_or_push(
    walk: Walk, row: int, ordered: list[int], position: int, running: list[int]
) -> Refused | None:
    """Place a row, suspending rows from the tail until it fits; undone when it never does.

    Args:
        walk: the decision's walk.
        row: the row to place.
        ordered: all rows, best first.
        position: its own place among them.
        running: the places of the rows that run, ascending; those of rows that leave are removed.
    """
    placed = walk.place(row)
    if not isinstance(placed, Refused):
        return None
    if placed is OVER_LIMIT:
        return placed  # no other row's GPUs would help it
    start = walk.mark()
    nodes = walk.ctx.pools.nodes[int(walk.table.pool[row])]
    passed: list[int] = []  # cannot help this row, but perhaps the next
    for k in range(len(running) - 1, -1, -1):
        tail = running[k]
        if tail <= position:
            break
        victim = ordered[tail]
        if not walk.is_victim(victim, nodes) or not _is_in_the_way(walk, victim, row):
            passed.append(tail)
            continue
        walk.take_back(victim)
        again = walk.place(row)
        if not isinstance(again, Refused):
            running[k:] = passed[::-1]
            return None
        placed = again
    walk.rollback(start)
    return placed


def _is_in_the_way(walk: Walk, victim: int, row: int) -> bool:
    """Could a row use a victim's GPUs? One that has a home can use no others."""
    if walk.claims is not None and not walk.claims.helps(row, victim):
        return False
    home = walk.table.homes.get(row)
    if home is None:
        return True
    held = walk.occupancy.held[victim]
    theirs = dict(zip(held.nodes, held.masks, strict=True))
    return any(
        theirs.get(node, 0) & mask for node, mask in zip(home.nodes, home.masks, strict=True)
    )


def _preempt_from_tail(walk: Walk, rows: Rows, running: Bools) -> None:
    """Blox' strict walk: a row that does not fit suspends rows from the end, or ends the walk.

    Rows suspended for nothing stay suspended; one that is met later in the walk is tried again as a
    waiting row.
    """
    if walk.limits is not None:
        within = walk.within_limits(rows)
        rows, running = rows[within], running[within]
    waiting: list[int] = np.flatnonzero(~running).tolist()
    victims: list[int] = np.flatnonzero(running & ~walk.is_protected(rows)).tolist()
    emptied_from = len(rows)  # every row from here on waits, whether or not it ran before
    next_waiting = 0
    position = -1
    while True:
        while next_waiting < len(waiting) and waiting[next_waiting] <= position:
            next_waiting += 1
        upcoming = waiting[next_waiting] if next_waiting < len(waiting) else len(rows)
        position = min(upcoming, max(emptied_from, position + 1))
        if position >= len(rows):
            return
        row = int(rows[position])
        if row in walk.occupancy.held:
            continue  # protected, or a row of another pool: it runs on
        placed = walk.place(row)
        while isinstance(placed, Refused):
            if placed.reason == "Quota" or row in walk.table.homes:
                break  # others' GPUs would not help it
            if not victims or victims[-1] <= position:
                walk.refuse(row, placed)
                return
            emptied_from = victims.pop()
            walk.take_back(int(rows[emptied_from]))
            placed = walk.place(row)
        if isinstance(placed, Refused):
            walk.refuse(row, placed)


def _entitled_first(walk: Walk, rows: Rows) -> Rows:
    """Rows inside their tenant's entitlement before those that would borrow."""
    if walk.tenancy is None:
        return rows
    return walk.tenancy.entitled_first(rows, reclaims=walk.may_preempt)


class _Misfits:
    """Rows that need not be tried in a walk, because of a misfit before them.

    When a misfit stops the walk, it stops its own pool; one that is over its quota stops its own
    tenant only. When misfits are skipped, a request equal to a refused one is not tried again.
    """

    def __init__(self, walk: Walk, *, stop: bool) -> None:
        self._walk = walk
        self._stop = stop
        self._closed: set[object] = set()

    @property
    def rules_out_all(self) -> bool:
        """Is there no point in trying any row?"""
        return self._stop and self._walk.ctx.pools.whole and ("pool", 0) in self._closed

    def rule_out(self, row: int) -> bool:
        """Is there no point in trying this row?"""
        if not self._closed:
            return False
        if self._stop:
            table = self._walk.table
            return bool(
                ("pool", int(table.pool[row])) in self._closed
                or ("tenant", int(table.vc[row])) in self._closed
            )
        return self._walk.tenancy is None and self._ask(row) in self._closed

    def reopen(self) -> None:
        """GPUs became free, and with them other amounts of memory and cores."""
        if self._walk.tracks_host and not self._stop:
            self._closed.clear()

    def add(self, row: int, refusal: Refused) -> None:
        """Remember that a row did not fit."""
        table = self._walk.table
        if refusal is OVER_LIMIT:
            pass  # one that needs less, or counts against other limits, may pass it
        elif not self._stop:
            self._closed.add(self._ask(row))
        elif row in table.homes:
            pass  # no other row is to wait for these very GPUs
        elif refusal.reason == "Quota":
            self._closed.add(("tenant", int(table.vc[row])))
        else:
            self._closed.add(("pool", int(table.pool[row])))

    def _ask(self, row: int) -> object:
        table = self._walk.table
        request = GpuRequest(row, int(table.gang[row]), table)
        host: object = request.host_needs if self._walk.tracks_host else None
        if self._walk.host_sharing is not None:
            host = self._walk.host_sharing.wanted(row)
        return (
            int(table.pool[row]),
            self._walk.placement.sameness(request),
            request.layout,
            host,
            table.homes.get(row),
        )
