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

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.occupancy import Placement
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.gavel.entries import ALONE, Entries
from dlsched.policies.scheduling.gavel.time_shares import Source

__all__ = ["PublishedRounds"]

Key = tuple[int, int]  # a job and its partner, `ALONE` for none
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
        self._given: list[float] = []  # seconds given on each type since the last reset
        self._last_reset = 0.0
        self._dirty = False
        self._present: set[int] = set()  # the jobs in the books
        self._leases: dict[Key, Lease] = {}
        # of the last round: type, and per half the steps done before, and the speed
        self._ran: dict[Key, tuple[int, float, tuple[float, ...], tuple[float, ...]]] = {}
        self._round_start = 0.0
        self._servers: list[list[list[int]]] = []
        self._room: list[int] = []
        self._placements: dict[tuple[int, ...], Placement] = {}
        self._order: list[int] = []  # types as they were served last

    def decide(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """One round: credit what ran, make a new X if it is due, pick, and give GPUs."""
        if not ctx.semantics.drift:
            raise BadInput("mechanism=published needs rounds of whole steps: -o semantics=gavel")
        if not self._types:
            self._look_at(ctx.occupancy.cluster)
        elif not self._servers:
            self._find_servers(ctx.occupancy.cluster)
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
        self._carry_out(self._assign(self._pick()), ctx, walk)

    def _look_at(self, cluster: Cluster) -> None:
        """Types by name; GPU ids in the order of types, then nodes."""
        self._types = tuple(sorted(set(cluster.gpu_types)))
        self._books = Entries(len(self._types))
        self._given = [0.0] * len(self._types)
        self._find_servers(cluster)

    def _find_servers(self, cluster: Cluster) -> None:
        self._servers = [
            [
                list(range(first, first + node.gpus))
                for node, first in zip(cluster.nodes, cluster.first_gpu.tolist(), strict=True)
                if node.gpu_type == name
            ]
            for name in self._types
        ]
        self._room = [sum(len(server) for server in servers) for servers in self._servers]

    # -- who is there -----------------------------------------------------------------------------

    def _credit(self, ctx: RoundContext) -> None:
        """Time received in the last round, latest stop first."""
        if not self._ran:
            return
        executed, last = ctx.table.executed, ctx.last_round
        stops: list[tuple[float, Key, int, float]] = []
        for key, (kind, start, done, speed) in self._ran.items():
            known = last.get(key[0])
            if known is not None:
                stops.append((-known[0], key, kind, known[1]))
                continue
            stop = start + (executed.item(key[0]) - done[0]) / speed[0]
            if key[1] != ALONE:
                stop = max(stop, start + (executed.item(key[1]) - done[1]) / speed[1])
            stops.append((-stop, key, kind, stop - self._round_start))
        stops.sort()
        line, given = self._books.line, self._given
        for _, _, kind, took in stops:  # one after the other: sums depend on their order
            given[kind] += took
        at = [line[key] for _, key, _, _ in stops], [kind for _, _, kind, _ in stops]
        self._books.got[at] += [took for _, _, _, took in stops]
        self._round_start = -stops[0][0]
        self._ran = {}

    def _strike_out(self, present: set[int]) -> None:
        """Whoever has ended leaves the books, and its pairs with it."""
        books = self._books
        gone = np.array(sorted(self._present - present), np.int64)
        if gone.size:
            books.keep(~np.isin(books.one, gone) & ~np.isin(books.other, gone))
            self._dirty = True

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
                self._dirty = True
            if ctx.speeds is not None:
                mine = (books.one == row) | (books.other == row)
                pairs = np.flatnonzero(mine & (books.other != ALONE))
                ends, scales = (books.one[pairs], books.other[pairs]), books.scale[pairs]
                books.speed[pairs] = ctx.speeds.together(*ends, scales, self._types).min(axis=2)

    def _enter(self, rows: Rows, ctx: RoundContext) -> None:
        books, table = self._books, ctx.table
        present = books.one[books.other == ALONE]
        for row in rows[~np.isin(rows, present)].tolist():
            one = np.array([row])
            scale = table.gang[one]
            self._books.add(
                one, np.array([ALONE]), scale, self._speeds(one, ctx), ctx.round_length / 2
            )
            if self._packs and ctx.speeds is not None:
                alike = present[table.gang[present] == scale]
                first, second = np.minimum(alike, row), np.maximum(alike, row)
                scales = table.gang[alike]
                both = ctx.speeds.together(first, second, scales, self._types)
                self._books.add(first, second, scales, both.min(axis=2), 0.0)
            present = np.append(present, row)
            self._dirty = True

    def _speeds(self, rows: Rows, ctx: RoundContext) -> Floats:
        if ctx.speeds is None:
            return np.ones((len(rows), len(self._types)))
        return ctx.speeds.alone(rows, ctx.table.gang[rows], self._types)

    def _reset(self, rows: Rows, ctx: RoundContext) -> None:
        """Settle what was owed, begin to count anew, and ask for X."""
        books, half = self._books, ctx.round_length / 2
        books.deficit += books.x * (ctx.now - self._last_reset) - (books.got - half)
        books.got[:] = half
        self._given = [sum(half for _ in range(len(books)))] * len(self._types)
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
        self._dirty = False

    # -- who runs where ---------------------------------------------------------------------------

    def _priorities(self) -> Floats:
        books, given = self._books, np.array(self._given)
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = np.where(given > 0, books.got / given, 0.0)
            urgent = np.where(fraction == 0, books.x * 1e9, books.x / fraction)
        entitled = books.known[:, None] & (books.x != 0) & (books.speed > 0)
        return np.where(entitled, urgent, 0.0)

    def _pick(self) -> list[list[int]]:
        """Lines that get GPUs, by type, in the order in which they were taken."""
        kinds = list(range(len(self._types)))[::-1]  # v100, p100, k80
        if self._shuffles:
            self._lots.shuffle(kinds)
        books, priority = self._books, self._priorities()
        picked: list[list[int]] = [[] for _ in kinds]
        free = list(self._room)
        scales, keys = books.scales, books.keys
        placed: set[int] = set()
        for lines, types in self._queues(kinds, priority):
            for line, kind in zip(lines, types, strict=False):
                one, other = keys[line]
                if one in placed or other in placed:
                    continue
                if scales[line] > free[kind]:
                    if self._nobody_overtakes:
                        break
                    continue
                picked[kind].append(line)
                placed.add(one)
                if other != ALONE:
                    placed.add(other)
                free[kind] -= scales[line]
                if not self._one_queue and not free[kind]:
                    break
        self._order = kinds
        return picked

    def _queues(
        self, kinds: list[int], priority: Floats
    ) -> Iterator[tuple[list[int], Iterable[int]]]:
        """Lines that may be picked, best first, and their types: a queue a type, or one in all."""
        books = self._books
        may = books.speed > 0
        if self._only_entitled:
            may &= priority > 0
        columns = books.x, books.deficit, priority
        if self._one_queue:
            order = np.lexsort([-column[:, kinds].T.ravel() for column in columns])
            order = order[may[:, kinds].T.ravel()[order]]
            which = np.array(kinds)[order // len(books)]
            yield (order % len(books)).tolist(), which.tolist()
            return
        for kind in kinds:
            lines = np.flatnonzero(may[:, kind])
            order = np.lexsort([-column[lines, kind] for column in columns])
            yield lines[order].tolist(), repeat(kind)

    def _assign(self, picked: list[list[int]]) -> dict[Key, Lease]:
        """Exact GPUs: who was on this type keeps its own, the others take the next in order."""
        books, leases = self._books, self._leases
        chosen: dict[Key, Lease] = {}
        keys, scales, known = books.keys, books.scales, books.known
        for kind in self._order:
            servers: list[list[int]] | None = None
            taken: set[int] = set()
            pointer = 0
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
                    else:
                        others.append(line)
                for line in others:
                    key = keys[line]
                    if not known[line]:
                        continue
                    if servers is None:
                        servers = [list(server) for server in self._servers[kind]]
                    gpus: list[int] = []
                    while len(gpus) < size:
                        if not servers[pointer]:
                            pointer += 1
                            continue
                        gpu = servers[pointer].pop(0)
                        if gpu not in taken:
                            gpus.append(gpu)
                            taken.add(gpu)
                    chosen[key] = (kind, tuple(gpus))
        return chosen

    # -- the walk ---------------------------------------------------------------------------------

    def _carry_out(self, chosen: dict[Key, Lease], ctx: RoundContext, walk: Walk) -> None:
        cluster, held = ctx.occupancy.cluster, ctx.occupancy.held
        wanted: dict[int, Placement] = {}
        for (one, other), (_, gpus) in chosen.items():
            wanted[one] = self._placement(gpus, cluster)
            if other != ALONE:
                wanted[other] = wanted[one]
        for row in [row for row, where in held.items() if wanted.get(row) != where]:
            walk.suspend(row)
        for one, other in chosen:
            if one not in held:
                if other in held:
                    walk.share(one, other)
                    continue
                walk.place_exactly(one, wanted[one])
            if other != ALONE and other not in held:
                walk.share(other, one)
        self._leases = chosen
        self._note_what_runs(chosen, ctx)

    def _note_what_runs(self, chosen: dict[Key, Lease], ctx: RoundContext) -> None:
        books, executed = self._books, ctx.table.executed
        lines = [books.line[key] for key in chosen]
        kinds = [kind for kind, _ in chosen.values()]
        rates = books.speed[lines, kinds].tolist() if chosen else []
        before = executed[[one for one, _ in chosen]].tolist() if chosen else []
        pairs = [key for key in chosen if key[1] != ALONE]
        both: dict[Key, list[list[float]]] = {}
        if pairs and ctx.speeds is not None:
            first, second = np.array(pairs, np.int64).T
            speeds = ctx.speeds.together(first, second, ctx.table.gang[first], self._types)
            both = dict(zip(pairs, speeds.tolist(), strict=True))
        for key, kind, so_far, rate in zip(chosen, kinds, before, rates, strict=True):
            done: tuple[float, ...] = (so_far,)
            speed: tuple[float, ...] = (rate,)
            if key[1] != ALONE:
                done = (so_far, executed.item(key[1]))
                speed = tuple(both[key][kind])
            self._ran[key] = (kind, ctx.now, done, speed)

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
        books.keep(np.array(kept, np.bool_))
        books.rename(place)
        self._know_who_is_there()
        stays = [key for key in self._leases if key[0] in place and key[1] in place]
        self._leases = {_renamed(key, place): self._leases[key] for key in stays}
        ran: dict[Key, tuple[int, float, tuple[float, ...], tuple[float, ...]]] = {}
        for key, (kind, start, done, speed) in self._ran.items():
            if key[0] in place and key[1] in place:
                new = _renamed(key, place)
                step = 1 if new[0] == place[key[0]] else -1
                ran[new] = (kind, start, done[::step], speed[::step])
        self._ran = ran

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future rounds."""
        version, words, gauss = self._lots.getstate()
        return {
            "types": list(self._types),
            "books": self._books.state_dict(),
            "given": list(self._given),
            "last_reset": self._last_reset,
            "dirty": self._dirty,
            "leases": [[*key, kind, list(gpus)] for key, (kind, gpus) in self._leases.items()],
            "ran": [
                [*key, kind, start, list(done), list(speed)]
                for key, (kind, start, done, speed) in self._ran.items()
            ],
            "round_start": self._round_start,
            "lots": [version, list(words), gauss],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; servers are found again at the next round."""
        self._types = tuple(state["types"])
        self._books = Entries.of_state(state["books"], len(self._types))
        self._know_who_is_there()
        self._given = list(state["given"])
        self._last_reset, self._dirty = float(state["last_reset"]), bool(state["dirty"])
        self._leases = {
            (int(one), int(other)): (int(kind), tuple(gpus))
            for one, other, kind, gpus in state["leases"]
        }
        self._ran = {
            (int(one), int(other)): (int(kind), float(start), tuple(done), tuple(speed))
            for one, other, kind, start, done, speed in state["ran"]
        }
        self._round_start = float(state["round_start"])
        version, words, gauss = state["lots"]
        self._lots.setstate((version, tuple(words), gauss))
        self._servers = []


def _renamed(key: Key, place: Mapping[int, int]) -> Key:
    one, other = place[key[0]], place[key[1]]
    return (one, other) if other == ALONE or one < other else (other, one)
