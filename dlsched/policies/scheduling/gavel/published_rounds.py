"""Gavel's rounds exactly as its published simulator runs them, oddities included.

X becomes leases by priorities X / f, where f is the part that a job has had of all time given on a
type. Each round the best of each type's queue that fit are picked, types one after the other, and
get GPUs: the same as before where they can, else the next ones in order.

Known oddities, kept on purpose: who arrived since X was made may be picked but gets no GPU, which
then idles; a type's leftovers go to whoever is next, whatever X says; after an idle gap the time
that a job received counts from the end of the round before. `rounds` has none of them.

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
from dlsched.core.cluster import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.occupancy import Placement
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gavel.entries import ALONE, Entries
from dlsched.policies.scheduling.gavel.ran import NOTHING, Key, Ran, renamed_key
from dlsched.policies.scheduling.gavel.time_shares import Source
from dlsched.policies.scheduling.gavel.urgency import Queue

__all__ = ["PublishedRounds"]

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
        nobody_overtakes: bool = False,
        seed: int = 0,
    ) -> None:
        """Choose what the published policies differ in.

        Args:
            source: where X comes from.
            resolve_s: seconds between two X, at least.
            shuffles: types are served in an order drawn by lot each round.
            only_entitled: who has no share there gets nothing (FIFO).
            packs: pairs are entered in the books.
            one_queue: one queue over all types, instead of one each.
            nobody_overtakes: the first in a queue that does not fit is the last who is looked at.
            seed: of the lots.
        """
        self._source = source
        self._resolve_s = resolve_s
        self._shuffles, self._only_entitled = shuffles, only_entitled
        self._packs, self._one_queue = packs, one_queue
        self._nobody_overtakes = nobody_overtakes
        self._lots = random.Random(seed + 5)
        self._types: tuple[str, ...] = ()
        self._books = Entries(0)
        self._given: Floats = np.zeros(0)  # seconds given on each type since the last reset
        self._last_reset = 0.0
        self._dirty = False
        self._present: set[int] = set()  # the jobs in the books
        self._leases: dict[Key, Lease] = {}
        self._ran = NOTHING
        self._round_start = 0.0
        self._gpus: list[list[int]] = []  # of each type, server by server
        self._queues: list[Queue] = []  # of each type, or one in all; none when the books changed
        self._picked: list[set[int]] = []  # of the last round, by type
        self._contested = True  # did it depend on priorities, which move with every round?
        self._version = -1  # of the occupancy, after the last round was decided
        self._placements: dict[tuple[int, ...], Placement] = {}

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round: credit what ran, make a new X if it is due, pick, and give GPUs."""
        if not ctx.semantics.drift:
            raise BadInput("mechanism=published needs rounds of whole steps: -o semantics=gavel")
        if not self._types:
            self._look_at(ctx.occupancy.cluster)
        elif not self._gpus:
            self._find_gpus(ctx.occupancy.cluster)
        self._credit(ctx)
        present = set(rows.tolist())
        if present != self._present:
            self._strike_out(present)
        self._note_adapted(ctx)
        if present != self._present:
            self._enter(rows, ctx)
            self._present = present
        due = ctx.now - self._last_reset >= self._resolve_s or self._last_reset == 0
        if self._dirty and due:
            self._reset(rows, ctx)
        kinds = list(range(len(self._types)))[::-1]  # v100, p100, k80
        if self._shuffles:
            self._lots.shuffle(kinds)
        picked = self._pick(kinds)
        before, self._picked = self._picked, [set(lines) for lines in picked]
        if self._picked != before or ctx.occupancy.version != self._version:
            self._carry_out(self._assign(kinds, picked), ctx, walk)
        self._note_what_runs(ctx)
        self._version = ctx.occupancy.version
        walk.stable_until(self._repeats_until())

    def _look_at(self, cluster: Cluster) -> None:
        """Types by name; GPU ids in the order of types, then nodes."""
        self._types = tuple(sorted(set(cluster.gpu_types)))
        self._books = Entries(len(self._types))
        self._given = np.zeros(len(self._types))
        self._find_gpus(cluster)

    def _find_gpus(self, cluster: Cluster) -> None:
        self._gpus = [[] for _ in self._types]
        for node, first in zip(cluster.nodes, cluster.first_gpu.tolist(), strict=True):
            self._gpus[self._types.index(node.gpu_type)] += range(first, first + node.gpus)

    def _repeats_until(self) -> float:
        """Until when the same would be picked again, if nothing changes."""
        if self._shuffles or self._contested:
            return -math.inf
        if not self._dirty:
            return math.inf
        return math.nextafter(self._last_reset + self._resolve_s, -math.inf)

    # -- who is there -----------------------------------------------------------------------------

    def _credit(self, ctx: RoundContext) -> None:
        """Time received in the last rounds, in each the latest stop first."""
        ran, past = self._ran, ctx.since_decision
        if not len(ran.rows):
            return
        stop, took = ran.times(past, ctx.table.executed, self._round_start)
        order = (-stop).argsort(axis=1, kind="stable")  # rows ascend, so equals are in order
        kinds, took = ran.kinds[order], took[np.arange(len(stop))[:, None], order]
        np.add.at(self._given, kinds, took)  # one after the other: sums depend on their order
        np.add.at(self._books.got, (ran.lines[order], kinds), took)
        self._round_start = float(stop[-1].max())

    def _strike_out(self, present: set[int]) -> None:
        """Whoever has ended leaves the books, and its pairs with it."""
        books = self._books
        gone = self._present - present
        if gone:
            books.keep([one not in gone and other not in gone for one, other in books.keys])
            self._changed()

    def _know_who_is_there(self) -> None:
        books = self._books
        self._present = set(books.one[books.other == ALONE].tolist())

    def _note_adapted(self, ctx: RoundContext) -> None:
        """Whoever changed its batch size, or ran in a pair, has other speeds from now on."""
        books = self._books
        for row in [change.subject for change in ctx.changes if change.kind == "adapt"]:
            line = books.line.get((row, ALONE))
            if line is not None:
                books.speed[line] = self._speeds(np.array([row]), ctx)[0]
                self._changed()
            self._look_anew()
            if ctx.speeds is not None:
                mine = (books.one == row) | (books.other == row)
                pairs = np.flatnonzero(mine & (books.other != ALONE))
                ends, scales = (books.one[pairs], books.other[pairs]), books.scale[pairs]
                books.speed[pairs] = ctx.speeds.together(*ends, scales, self._types).min(axis=2)

    def _enter(self, rows: Rows, ctx: RoundContext) -> None:
        books, table = self._books, ctx.table
        for row in [row for row in rows.tolist() if row not in self._present]:
            one = np.array([row])
            scale, present = table.gang[one], books.one[books.other == ALONE]
            self._books.add(
                one, np.array([ALONE]), scale, self._speeds(one, ctx), ctx.round_length / 2
            )
            if self._packs and ctx.speeds is not None:
                alike = present[table.gang[present] == scale]
                first, second = np.minimum(alike, row), np.maximum(alike, row)
                scales = table.gang[alike]
                both = ctx.speeds.together(first, second, scales, self._types)
                self._books.add(first, second, scales, both.min(axis=2), 0.0)
            self._changed()

    def _changed(self) -> None:
        """Lines came, went, or have other speeds: a new X is wanted."""
        self._dirty = True
        self._look_anew()

    def _look_anew(self) -> None:
        self._queues, self._picked = [], []

    def _speeds(self, rows: Rows, ctx: RoundContext) -> Floats:
        if ctx.speeds is None:
            return np.ones((len(rows), len(self._types)))
        return ctx.speeds.alone(rows, ctx.table.gang[rows], self._types)

    def _reset(self, rows: Rows, ctx: RoundContext) -> None:
        """Settle what was owed, begin to count anew, and ask for X."""
        books, half = self._books, ctx.round_length / 2
        books.deficit += books.x * (ctx.now - self._last_reset) - (books.got - half)
        books.got[:] = half
        self._given = np.full(len(self._types), sum(half for _ in range(len(books))))
        self._last_reset = ctx.now
        shares = self._source(np.sort(rows), self._types, ctx)
        books.known[:] = False
        books.x[:] = 0.0
        lines = [books.line[row, ALONE] for row in shares.rows.tolist()]
        books.known[lines] = True
        books.x[lines] = shares.x
        pairs = zip(shares.first.tolist(), shares.second.tolist(), strict=True)
        at = [(books.line.get(pair, -1), place) for place, pair in enumerate(pairs)]
        lines = [line for line, _ in at if line >= 0]
        books.known[lines] = True
        books.x[lines] = shares.pair_x[[place for line, place in at if line >= 0]]
        self._look_anew()
        self._dirty = False

    # -- who runs where ---------------------------------------------------------------------------

    def _pick(self, kinds: list[int]) -> list[list[int]]:
        """Lines that get GPUs, by type, in the order in which they were taken.

        Args:
            kinds: the types, in the order in which they are served.
        """
        books = self._books
        picked: list[list[int]] = [[] for _ in kinds]
        free = [len(gpus) for gpus in self._gpus]
        scales, keys = books.scales, books.keys
        placed: set[int] = set()
        self._contested = False
        for queue in self._queues_of(kinds):
            earlier = set(placed)
            lines, types = queue.best_first(self._given)
            for turn, (line, kind) in enumerate(zip(lines, types, strict=True)):
                one, other = keys[line]
                if one in placed or other in placed:
                    if turn < queue.entitled and not (one in earlier or other in earlier):
                        self._contested = True
                    continue
                if scales[line] > free[kind]:
                    self._contested |= turn < queue.entitled
                    if self._nobody_overtakes:
                        break
                    continue
                picked[kind].append(line)
                placed.add(one)
                if other != ALONE:
                    placed.add(other)
                free[kind] -= scales[line]
                if not self._one_queue and not free[kind]:
                    behind = lines[turn + 1 : queue.entitled]
                    self._contested |= any(keys[line][0] not in earlier for line in behind)
                    break
        return picked

    def _queues_of(self, kinds: list[int]) -> list[Queue]:
        """A queue for each type, as they are served, or one in all."""
        only, books = self._only_entitled, self._books
        if self._one_queue:
            if self._shuffles or not self._queues:
                self._queues = [Queue(books, kinds, only_entitled=only)]
            return self._queues
        if not self._queues:
            self._queues = [Queue(books, [k], only_entitled=only) for k in range(len(kinds))]
        return [self._queues[kind] for kind in kinds]

    def _assign(self, kinds: list[int], picked: list[list[int]]) -> dict[Key, Lease]:
        """Exact GPUs: who was on this type keeps its own, the others take the next in order."""
        books, leases = self._books, self._leases
        chosen: dict[Key, Lease] = {}
        keys, scales, known = books.keys, books.scales, books.known.tolist()
        for kind in kinds:
            taken: set[int] = set()
            idle = filterfalse(taken.__contains__, self._gpus[kind])
            by_size: dict[int, list[int]] = {}
            for line in picked[kind]:
                by_size.setdefault(scales[line], []).append(line)
            for size in sorted(by_size, reverse=True):
                others = []
                for line in by_size[size]:
                    key = keys[line]
                    before = leases.get(key)
                    if before and before[0] == kind and taken.isdisjoint(before[1]):
                        chosen[key] = before
                        taken.update(before[1])
                    elif known[line]:
                        others.append(key)
                for key in others:
                    gpus = tuple(islice(idle, size))
                    chosen[key] = (kind, gpus)
                    taken.update(gpus)
        return chosen

    # -- the walk ---------------------------------------------------------------------------------

    def _carry_out(self, chosen: dict[Key, Lease], ctx: RoundContext, walk: Walk) -> None:
        cluster, held = ctx.occupancy.cluster, ctx.occupancy.held
        wanted: dict[int, Placement] = {}
        for (one, other), (_, gpus) in chosen.items():
            wanted[one] = self._placement(gpus, cluster)
            if other != ALONE:
                wanted[other] = wanted[one]
        leaving = [row for row, where in held.items() if wanted.get(row) != where]
        if len(wanted) == len(chosen):  # everybody alone
            left = set(leaving)
            coming = {row: at for row, at in wanted.items() if row not in held or row in left}
            walk.exchange(leaving, coming)
        else:
            for row in leaving:
                walk.suspend(row)
            self._seat_together(chosen, wanted, walk)
        self._leases = chosen
        self._ran = self._told_apart(chosen, ctx)

    def _seat_together(
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

    def _told_apart(self, chosen: Mapping[Key, Lease], ctx: RoundContext) -> Ran:
        """The leases of a round, as columns; what their jobs have done is noted apart."""
        books, keys = self._books, sorted(chosen)
        if not keys:
            return NOTHING
        lines = np.array([books.line[key] for key in keys])
        kinds = np.array([chosen[key][0] for key in keys])
        speed: list[tuple[float, ...]] = [(rate,) for rate in books.speed[lines, kinds].tolist()]
        pairs = [place for place, (_, other) in enumerate(keys) if other != ALONE]
        if pairs and ctx.speeds is not None:
            first, second = np.array([keys[place] for place in pairs], np.int64).T
            both = ctx.speeds.together(first, second, ctx.table.gang[first], self._types)
            for place, halves in zip(pairs, both[np.arange(len(pairs)), kinds[pairs]], strict=True):
                speed[place] = tuple(halves.tolist())
        rows = np.array([one for one, _ in keys])
        return Ran(keys, rows, lines, kinds, ctx.now, [], speed)

    def _note_what_runs(self, ctx: RoundContext) -> None:
        """The round begins: so far its jobs have done so much."""
        executed, ran = ctx.table.executed, self._ran
        done: list[tuple[float, ...]] = list(zip(executed[ran.rows].tolist(), strict=True))
        for place, (one, other) in enumerate(ran.keys if self._packs else ()):
            if other != ALONE:
                done[place] = (executed.item(one), executed.item(other))
        self._ran = ran._replace(start=ctx.now, done=done)

    def _placement(self, gpus: tuple[int, ...], cluster: Cluster) -> Placement:
        known = self._placements.get(gpus)
        if known is None:
            masks: dict[int, int] = {}
            for gpu in sorted(gpus):
                node = int(np.searchsorted(cluster.first_gpu, gpu, side="right")) - 1
                masks[node] = masks.get(node, 0) | 1 << (gpu - int(cluster.first_gpu[node]))
            known = self._placements[gpus] = Placement(tuple(masks), tuple(masks.values()))
        return known

    def rename(self, place: Mapping[int, int]) -> None:
        """Rows have other numbers now, by their old ones; whoever has none has ended."""
        place = {**place, ALONE: ALONE}
        books = self._books
        kept = [
            one in place and other in place
            for one, other in zip(books.one.tolist(), books.other.tolist(), strict=True)
        ]
        if not all(kept):
            self._dirty = True
        books.keep(kept)
        books.rename(place)
        self._look_anew()
        self._know_who_is_there()
        stays = [key for key in self._leases if key[0] in place and key[1] in place]
        self._leases = {renamed_key(key, place): self._leases[key] for key in stays}
        self._ran = self._ran.renamed(place, books.line)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        version, words, gauss = self._lots.getstate()
        return {
            "types": list(self._types),
            "books": self._books.state_dict(),
            "given": self._given.tolist(),
            "last_reset": self._last_reset,
            "dirty": self._dirty,
            "leases": [[*key, kind, list(gpus)] for key, (kind, gpus) in self._leases.items()],
            "ran": [
                [*key, kind, self._ran.start, list(done), list(speed)]
                for key, kind, done, speed in self._ran.leases()
            ],
            "round_start": self._round_start,
            "lots": [version, list(words), gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; servers are found again at the next round."""
        self._types = tuple(state["types"])
        self._books = Entries.of_state(state["books"], len(self._types))
        self._know_who_is_there()
        self._given = np.array(state["given"], np.float64)
        self._last_reset, self._dirty = float(state["last_reset"]), bool(state["dirty"])
        self._leases = {
            (int(one), int(other)): (int(kind), tuple(gpus))
            for one, other, kind, gpus in state["leases"]
        }
        self._ran = Ran.of(
            [
                ((int(one), int(other)), int(kind), tuple(done), tuple(speed))
                for one, other, kind, _, done, speed in state["ran"]
            ],
            float(state["ran"][0][3]) if state["ran"] else 0.0,
            self._books.line,
        )
        self._round_start = float(state["round_start"])
        version, words, gauss = state["lots"]
        self._lots.setstate((version, tuple(words), gauss))
        self._gpus = []
        self._look_anew()
