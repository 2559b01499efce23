"""Gavel's rounds exactly as its published simulator runs them, with its peculiarities.

X becomes leases by priorities X / f, where f is the part of all time given on a type that the job
received. In each round the most urgent jobs that fit are picked from the queue of each type, one
type after the other. They keep the GPUs that they had, if possible, and get the type's next GPUs in
order otherwise.

Known peculiarities, kept on purpose: a job that arrived after X was computed may be picked but gets
no GPU, which then idles; GPUs of a type that are left over go to the next jobs in the queue,
whatever X says; after an idle gap, received time counts from the end of the previous round. Gavel's
`mechanism=corrected` has none of them.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI 2020, section 5, and its artifact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import filterfalse, islice
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.sums import ordered_sum
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.time_shares import Source
from simulate.published.gavel.leases import NO_LEASES, Key, RoundLeases, renamed_key
from simulate.published.gavel.ledger import ALONE, PublishedLedger
from simulate.published.gavel.queue import PriorityQueue

Lease = tuple[int, tuple[int, ...]]  # type and GPU ids


class PublishedRounds:
    """The mechanism, and what it remembers from round to round."""

    def __init__(
        self,
        source: Source,
        *,
        resolve_s: float = 1920.0,
        shuffles: bool = False,
        only_entitled: bool = False,
        packs: bool = False,
        one_queue: bool = False,
        strict_order: bool = False,
        seed: int = 0,
    ) -> None:
        """Choose the variant; the published policies differ in these points.

        Args:
            source: computes X.
            resolve_s: least number of seconds between two computations of X.
            shuffles: serve the types in a new random order in each round.
            only_entitled: a job without a share on a type gets nothing there (FIFO).
            packs: also enter pairs of jobs in the ledger.
            one_queue: one queue over all types, instead of one for each type.
            strict_order: stop at the first job of a queue that does not fit.
            seed: of the random order of types.
        """
        self._source = source
        self._resolve_s = resolve_s
        self._shuffles, self._only_entitled = shuffles, only_entitled
        self._packs, self._one_queue = packs, one_queue
        self._strict_order = strict_order
        self._rng = random.Random(seed + 5)
        self._types: tuple[str, ...] = ()
        self._ledger = PublishedLedger(0)
        self._given: Floats = np.zeros(0)  # seconds given on each type since the last reset
        self._last_reset = 0.0
        self._dirty = False
        self._present: set[int] = set()  # the jobs in the ledger
        self._leases: dict[Key, Lease] = {}
        self._running = NO_LEASES
        self._round_start = 0.0
        self._gpus: list[list[int]] = []  # GPU ids by type, server by server
        # one for each type, or one for all types; empty after the ledger changed
        self._queues: list[PriorityQueue] = []
        self._picked: list[set[int]] = []  # ledger lines of the last round, by type
        self._contested = True  # did the pick depend on priorities, which always change?
        self._version = -1  # of the occupancy, after the last round was decided
        self._placements: dict[tuple[int, ...], Placement] = {}

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round: credit the time received, compute X if it is due, pick jobs, place them."""
        if not self._types:
            self._read_cluster(ctx.occupancy.cluster)
        elif not self._gpus:
            self._find_gpus(ctx.occupancy.cluster)
        self._credit(ctx)
        present = set(rows.tolist())
        if present != self._present:
            self._remove_ended(present)
        self._update_adapted(ctx)
        if present != self._present:
            self._enter(rows, ctx)
            self._present = present
        due = ctx.now - self._last_reset >= self._resolve_s or self._last_reset == 0
        if self._dirty and due:
            self._reset(rows, ctx)
        order = list(range(len(self._types)))[::-1]  # v100, p100, k80
        if self._shuffles:
            self._rng.shuffle(order)
        picked = self._pick(order)
        before, self._picked = self._picked, [set(lines) for lines in picked]
        if self._picked != before or ctx.occupancy.version != self._version:
            self._carry_out(self._assign(order, picked), ctx, walk)
        self._begin_round(ctx)
        self._version = ctx.occupancy.version
        walk.stable_until(self._repeats_until())

    def _read_cluster(self, cluster: Cluster) -> None:
        """Read the GPU types, sorted by name, and start an empty ledger."""
        self._types = tuple(sorted(set(cluster.gpu_types)))
        self._ledger = PublishedLedger(len(self._types))
        self._given = np.zeros(len(self._types))
        self._find_gpus(cluster)

    def _find_gpus(self, cluster: Cluster) -> None:
        self._gpus = [[] for _ in self._types]
        for node, first in zip(cluster.nodes, cluster.first_gpu.tolist(), strict=True):
            self._gpus[self._types.index(node.gpu_type)] += range(first, first + node.gpus)

    def _repeats_until(self) -> float:
        """The time until which the next rounds would pick the same jobs, if nothing changes."""
        if self._shuffles or self._contested:
            return -math.inf
        if not self._dirty:
            return math.inf
        return math.nextafter(self._last_reset + self._resolve_s, -math.inf)

    # -- the ledger -------------------------------------------------------------------------------

    def _credit(self, ctx: RoundContext) -> None:
        """Enter the time received in the rounds since the last decision, latest stop first."""
        running, past = self._running, ctx.since_decision
        if not len(running.rows):
            return
        stop, took = running.times(past, ctx.table.executed, self._round_start)
        order = (-stop).argsort(axis=1, kind="stable")  # rows ascend, so equals are in order
        types, took = running.types[order], took[np.arange(len(stop))[:, None], order]
        np.add.at(self._given, types, took)  # one after the other: sums depend on their order
        np.add.at(self._ledger.received, (running.lines[order], types), took)
        self._round_start = float(stop[-1].max())

    def _remove_ended(self, present: set[int]) -> None:
        """Remove jobs that have ended, and their pairs, from the ledger."""
        ledger = self._ledger
        gone = self._present - present
        if gone:
            ledger.keep([one not in gone and other not in gone for one, other in ledger.keys])
            self._changed()

    def _find_present(self) -> None:
        ledger = self._ledger
        self._present = set(ledger.one[ledger.other == ALONE].tolist())

    def _update_adapted(self, ctx: RoundContext) -> None:
        """Enter the new throughputs of jobs that changed their batch size or ran in a pair."""
        ledger = self._ledger
        for row in [change.subject for change in ctx.changes if change.kind == "adapt"]:
            line = ledger.line.get((row, ALONE))
            if line is not None:
                ledger.speed[line] = self._speeds(np.array([row]), ctx)[0]
                self._changed()
            self._forget_queues()
            if ctx.perf.by_type is not None:
                mine = (ledger.one == row) | (ledger.other == row)
                pairs = np.flatnonzero(mine & (ledger.other != ALONE))
                ends, scales = (ledger.one[pairs], ledger.other[pairs]), ledger.scale[pairs]
                ledger.speed[pairs] = ctx.perf.rate_in_pairs(*ends, self._types, scales).min(axis=2)

    def _enter(self, rows: Rows, ctx: RoundContext) -> None:
        ledger, table = self._ledger, ctx.table
        for row in [row for row in rows.tolist() if row not in self._present]:
            one = np.array([row])
            scale, present = table.gang[one], ledger.one[ledger.other == ALONE]
            self._ledger.add(
                one, np.array([ALONE]), scale, self._speeds(one, ctx), ctx.round_length / 2
            )
            if self._packs and ctx.perf.by_type is not None:
                alike = present[table.gang[present] == scale]
                first, second = np.minimum(alike, row), np.maximum(alike, row)
                scales = table.gang[alike]
                both = ctx.perf.rate_in_pairs(first, second, self._types, scales)
                self._ledger.add(first, second, scales, both.min(axis=2), 0.0)
            self._changed()

    def _changed(self) -> None:
        """Lines came, went, or have other throughputs: X must be computed again."""
        self._dirty = True
        self._forget_queues()

    def _forget_queues(self) -> None:
        self._queues, self._picked = [], []

    def _speeds(self, rows: Rows, ctx: RoundContext) -> Floats:
        return ctx.perf.rate(rows, self._types, ctx.table.gang[rows])

    def _reset(self, rows: Rows, ctx: RoundContext) -> None:
        """Add up the deficits, count received time from 0 again, and compute X."""
        ledger, half = self._ledger, ctx.round_length / 2
        ledger.deficit += ledger.x * (ctx.now - self._last_reset) - (ledger.received - half)
        ledger.received[:] = half
        self._given = np.full(len(self._types), ordered_sum(half for _ in range(len(ledger))))
        self._last_reset = ctx.now
        shares = self._source(np.sort(rows), self._types, ctx)
        ledger.known[:] = False
        ledger.x[:] = 0.0
        lines = [ledger.line[row, ALONE] for row in shares.rows.tolist()]
        ledger.known[lines] = True
        ledger.x[lines] = shares.x
        pairs = zip(shares.first.tolist(), shares.second.tolist(), strict=True)
        at = [(ledger.line.get(pair, -1), place) for place, pair in enumerate(pairs)]
        lines = [line for line, _ in at if line >= 0]
        ledger.known[lines] = True
        ledger.x[lines] = shares.pair_x[[place for line, place in at if line >= 0]]
        self._forget_queues()
        self._dirty = False

    # -- picking jobs -----------------------------------------------------------------------------

    def _pick(self, order: list[int]) -> list[list[int]]:
        """Ledger lines that get GPUs, by type (served in `order`), in the order of picking."""
        ledger = self._ledger
        picked: list[list[int]] = [[] for _ in order]
        free = [len(gpus) for gpus in self._gpus]
        scales, keys = ledger.scales, ledger.keys
        placed: set[int] = set()
        self._contested = False
        for queue in self._queues_of(order):
            earlier = set(placed)
            lines, types = queue.best_first(self._given)
            for turn, (line, gpu_type) in enumerate(zip(lines, types, strict=True)):
                one, other = keys[line]
                if one in placed or other in placed:
                    if turn < queue.entitled and not (one in earlier or other in earlier):
                        self._contested = True
                    continue
                if scales[line] > free[gpu_type]:
                    self._contested |= turn < queue.entitled
                    if self._strict_order:
                        break
                    continue
                picked[gpu_type].append(line)
                placed.add(one)
                if other != ALONE:
                    placed.add(other)
                free[gpu_type] -= scales[line]
                if not self._one_queue and not free[gpu_type]:
                    behind = lines[turn + 1 : queue.entitled]
                    self._contested |= any(keys[line][0] not in earlier for line in behind)
                    break
        return picked

    def _queues_of(self, order: list[int]) -> list[PriorityQueue]:
        """The queues in the order in which they are served: one for each type, or one for all."""
        only, ledger = self._only_entitled, self._ledger
        if self._one_queue:
            if self._shuffles or not self._queues:
                self._queues = [PriorityQueue(ledger, order, only_entitled=only)]
            return self._queues
        if not self._queues:
            self._queues = [
                PriorityQueue(ledger, [k], only_entitled=only) for k in range(len(order))
            ]
        return [self._queues[gpu_type] for gpu_type in order]

    def _assign(self, order: list[int], picked: list[list[int]]) -> dict[Key, Lease]:
        """GPU ids: jobs that were on this type keep theirs, the others take the next in order."""
        ledger, leases = self._ledger, self._leases
        chosen: dict[Key, Lease] = {}
        keys, scales, known = ledger.keys, ledger.scales, ledger.known.tolist()
        for gpu_type in order:
            taken: set[int] = set()
            idle = filterfalse(taken.__contains__, self._gpus[gpu_type])
            by_size: dict[int, list[int]] = {}
            for line in picked[gpu_type]:
                by_size.setdefault(scales[line], []).append(line)
            for size in sorted(by_size, reverse=True):
                others = []
                for line in by_size[size]:
                    key = keys[line]
                    before = leases.get(key)
                    if before and before[0] == gpu_type and taken.isdisjoint(before[1]):
                        chosen[key] = before
                        taken.update(before[1])
                    elif known[line]:
                        others.append(key)
                for key in others:
                    gpus = tuple(islice(idle, size))
                    chosen[key] = (gpu_type, gpus)
                    taken.update(gpus)
        return chosen

    # -- placing them -----------------------------------------------------------------------------

    def _carry_out(self, chosen: dict[Key, Lease], ctx: RoundContext, walk: Walk) -> None:
        cluster, held = ctx.occupancy.cluster, ctx.occupancy.held
        wanted: dict[int, Placement] = {}
        for (one, other), (_, gpus) in chosen.items():
            wanted[one] = self._placement(gpus, cluster)
            if other != ALONE:
                wanted[other] = wanted[one]
        leaving = [row for row, where in held.items() if wanted.get(row) != where]
        if len(wanted) == len(chosen):  # no pairs
            left = set(leaving)
            coming = {row: at for row, at in wanted.items() if row not in held or row in left}
            walk.exchange(leaving, coming)
        else:
            for row in leaving:
                walk.suspend(row)
            self._place_pairs(chosen, wanted, walk)
        self._leases = chosen
        self._running = self._leases_of(chosen, ctx)

    def _place_pairs(
        self, chosen: Mapping[Key, Lease], wanted: Mapping[int, Placement], walk: Walk
    ) -> None:
        held = walk.occupancy.held
        for one, other in chosen:
            if one not in held:
                if other in held:
                    walk.share(one, other)
                    continue
                walk.place_exactly(one, wanted[one])
            if other != ALONE and other not in held:
                walk.share(other, one)

    def _leases_of(self, chosen: Mapping[Key, Lease], ctx: RoundContext) -> RoundLeases:
        """The leases of a round, as columns; `_begin_round` adds the steps done so far."""
        ledger, keys = self._ledger, sorted(chosen)
        if not keys:
            return NO_LEASES
        lines = np.array([ledger.line[key] for key in keys])
        types = np.array([chosen[key][0] for key in keys])
        speed: list[tuple[float, ...]] = [(rate,) for rate in ledger.speed[lines, types].tolist()]
        pairs = [place for place, (_, other) in enumerate(keys) if other != ALONE]
        if pairs and ctx.perf.by_type is not None:
            first, second = np.array([keys[place] for place in pairs], np.int64).T
            both = ctx.perf.rate_in_pairs(first, second, self._types, ctx.table.gang[first])
            for place, halves in zip(pairs, both[np.arange(len(pairs)), types[pairs]], strict=True):
                speed[place] = tuple(halves.tolist())
        rows = np.array([one for one, _ in keys])
        return RoundLeases(keys, rows, lines, types, ctx.now, [], speed)

    def _begin_round(self, ctx: RoundContext) -> None:
        """Note the start of the round and the steps that its jobs have done so far."""
        executed, running = ctx.table.executed, self._running
        done: list[tuple[float, ...]] = list(zip(executed[running.rows].tolist(), strict=True))
        for place, (one, other) in enumerate(running.keys if self._packs else ()):
            if other != ALONE:
                done[place] = (executed.item(one), executed.item(other))
        self._running = running._replace(start=ctx.now, done=done)

    def _placement(self, gpus: tuple[int, ...], cluster: Cluster) -> Placement:
        known = self._placements.get(gpus)
        if known is None:
            known = self._placements[gpus] = Placement.of_gpu_ids(gpus, cluster)
        return known

    def rename(self, place: Mapping[int, int]) -> None:
        """Follow a packed table, with new row numbers by old; jobs without one have ended."""
        place = {**place, ALONE: ALONE}
        ledger = self._ledger
        kept = [
            one in place and other in place
            for one, other in zip(ledger.one.tolist(), ledger.other.tolist(), strict=True)
        ]
        if not all(kept):
            self._dirty = True
        ledger.keep(kept)
        ledger.rename(place)
        self._forget_queues()
        self._find_present()
        stays = [key for key in self._leases if key[0] in place and key[1] in place]
        self._leases = {renamed_key(key, place): self._leases[key] for key in stays}
        self._running = self._running.renamed(place, ledger.line)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        version, words, gauss = self._rng.getstate()
        return {
            "types": list(self._types),
            "books": self._ledger.state_dict(),
            "given": self._given.tolist(),
            "last_reset": self._last_reset,
            "dirty": self._dirty,
            "leases": [
                [*key, gpu_type, list(gpus)] for key, (gpu_type, gpus) in self._leases.items()
            ],
            "ran": [
                [*key, gpu_type, self._running.start, list(done), list(speed)]
                for key, gpu_type, done, speed in self._running.leases()
            ],
            "round_start": self._round_start,
            "lots": [version, list(words), gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the GPU ids are read again in the next round."""
        self._types = tuple(state["types"])
        self._ledger = PublishedLedger.of_state(state["books"], len(self._types))
        self._find_present()
        self._given = np.array(state["given"], np.float64)
        self._last_reset, self._dirty = float(state["last_reset"]), bool(state["dirty"])
        self._leases = {
            (int(one), int(other)): (int(gpu_type), tuple(gpus))
            for one, other, gpu_type, gpus in state["leases"]
        }
        self._running = RoundLeases.of(
            [
                ((int(one), int(other)), int(gpu_type), tuple(done), tuple(speed))
                for one, other, gpu_type, _, done, speed in state["ran"]
            ],
            float(state["ran"][0][3]) if state["ran"] else 0.0,
            self._ledger.line,
        )
        self._round_start = float(state["round_start"])
        version, words, gauss = state["lots"]
        self._rng.setstate((version, tuple(words), gauss))
        self._gpus = []
        self._forget_queues()
