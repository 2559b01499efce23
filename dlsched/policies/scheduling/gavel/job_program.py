"""The matrix of a program about jobs, GPU types and pairs, for the interior-point method.

Columns are time of a job, or of a pair, on a type (x); where there is one, the level that all are
raised to or held under (t); where finish times count, one time a job (y). Rows, in this order:

    −x ≤ 0                                       no time is negative
    Σ s x ≤ N           for every type           there are so many GPUs
    Σ x ≤ 1             for every job            it has all the time there is, at most
    Σ a x + b t + d y ≤ …  for every paced job   what it must get
    (u + y, u − y, 2), u = Σ f x, is a cone      y ≥ 1/u

A system with it is brought down to one small matrix a job and one of the types where jobs do not
meet in pairs; else to one number for every row that is a sum over x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.gavel.interior_point import SIDES, Scaling, Solve

__all__ = ["JobMatrix"]

LITTLE = 7e-8
REFINEMENTS = 10
HELPS = 6.0  # times less is left, or it ends
EXACT = 1e-14
BALANCED = 3
AWAY = 1.0  # what weighs less is away from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMatrix:
    """G.

    Attributes:
        jobs: how many.
        kind: GPU type of each column of x.
        job, column: who has time in which column; each job in order of columns.
        bound: of the columns, in −x ≤ 0.
        hold: GPUs, by column.
        time: by entry of (job, column), in the sums of time.
        gets: by entry, in what a job must get, or in u.
        paced: jobs that must get something.
        level: b, by job; none where there is no t.
        late: d, by job; none where there is no y.
        inverse: of y in the cones, by job; none likewise.
    """

    jobs: int
    kinds: int
    kind: Ints
    job: Ints
    column: Ints
    bound: Floats
    hold: Floats
    time: Floats
    gets: Floats
    paced: Bools
    level: Floats
    late: Floats
    inverse: Floats

    @property
    def has_level(self) -> bool:
        """Is there a t?"""
        return bool(len(self.level))

    @property
    def has_cones(self) -> bool:
        """Is there a y for every job?"""
        return bool(len(self.late))

    @property
    def width(self) -> int:
        """Columns."""
        return len(self.kind) + self.has_level + len(self.late)

    @property
    def height(self) -> int:
        """Rows."""
        return (
            len(self.kind) + self.kinds + self.jobs + int(self.paced.sum()) + SIDES * len(self.late)
        )

    # -- as a matrix -------------------------------------------------------------------------------

    def _of_job(self, values: Floats) -> Floats:
        """Sums over the entries of each job."""
        sums: Floats = np.bincount(self.job, values, self.jobs).astype(np.float64)
        return sums

    def _of_column(self, values: Floats) -> Floats:
        """Sums over the entries of each column."""
        sums: Floats = np.bincount(self.column, values, len(self.kind)).astype(np.float64)
        return sums

    def _columns(self, v: Floats) -> tuple[Floats, float, Floats]:
        """x, t and y of a vector of columns."""
        count = len(self.kind)
        t = float(v[count]) if self.has_level else 0.0
        return v[:count], t, v[count + self.has_level :]

    def _rows(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Bounds, types, times, paces (0 of those without) and cones of a vector of rows."""
        first = len(self.kind)
        second, third = first + self.kinds, first + self.kinds + self.jobs
        fourth = third + int(self.paced.sum())
        paces = np.zeros(self.jobs)
        paces[self.paced] = z[third:fourth]
        cones = z[fourth:].reshape(-1, SIDES)
        return z[:first], z[first:second], z[second:third], paces, cones

    def times(self, v: Floats) -> Floats:
        """G v."""
        x, t, y = self._columns(v)
        there = x[self.column]
        gets = self._of_job(self.gets * there)
        paces = np.zeros(self.jobs) if self.has_cones else gets
        if self.has_level:
            paces = paces + self.level * t
        found = [
            -self.bound * x,
            np.bincount(self.kind, self.hold * x, self.kinds),
            self._of_job(self.time * there),
        ]
        if self.has_cones:
            paces = paces + self.late * y
            inverse = self.inverse * y
            sides = np.stack([gets + inverse, gets - inverse, np.zeros(self.jobs)], axis=1)
            return np.concatenate([*found, paces[self.paced], -sides.ravel()])
        return np.concatenate([*found, paces[self.paced]])

    def turned(self, z: Floats) -> Floats:
        """Gᵀ z."""
        bounds, types, times, paces, cones = self._rows(z)
        gets = -(cones[:, 0] + cones[:, 1]) if self.has_cones else paces
        x = -self.bound * bounds + self.hold * types[self.kind]
        x = x + self._of_column(self.time * times[self.job] + self.gets * gets[self.job])
        found = [x]
        if self.has_level:
            found.append(np.array([self.level @ paces]))
        if self.has_cones:
            found.append(self.late * paces - self.inverse * (cones[:, 0] - cones[:, 1]))
        return np.concatenate(found)

    def largest(self) -> tuple[Floats, Floats]:
        """The largest absolute value of each row, and of each column."""
        gets = np.zeros(self.jobs)
        np.maximum.at(gets, self.job, np.abs(self.gets))
        times, types = np.zeros(self.jobs), np.zeros(self.kinds)
        np.maximum.at(times, self.job, self.time)
        np.maximum.at(types, self.kind, self.hold)
        paces = np.zeros(self.jobs) if self.has_cones else gets.copy()
        if self.has_level:
            paces = np.maximum(paces, np.abs(self.level))
        rows = [self.bound, types, times]
        x = np.maximum(self.bound, self.hold)
        np.maximum.at(x, self.column, np.maximum(self.time, np.abs(self.gets)))
        columns = [x]
        if self.has_level:
            columns.append(np.array([np.abs(self.level[self.paced]).max()]))
        if self.has_cones:
            paces = np.maximum(paces, self.late)
            side = np.maximum(gets, self.inverse)
            rows += [paces[self.paced], np.stack([side, side, np.zeros(self.jobs)], axis=1).ravel()]
            columns.append(np.maximum(self.late, self.inverse))
        else:
            rows.append(paces[self.paced])
        return np.concatenate(rows), np.concatenate(columns)

    def sums(self) -> Floats:
        """All rows but the first, [row, column]."""
        count, kinds, jobs = len(self.kind), self.kinds, self.jobs
        found = np.zeros((self.height - count, self.width))
        found[self.kind, np.arange(count)] = self.hold
        found[kinds + self.job, self.column] = self.time
        gets = np.zeros((jobs, self.width))
        gets[self.job, self.column] = self.gets
        paces = np.zeros((jobs, self.width)) if self.has_cones else gets.copy()
        if self.has_level:
            paces[:, count] = self.level
        if self.has_cones:
            y = count + self.has_level + np.arange(jobs), np.arange(jobs)
            inverse = np.zeros((jobs, self.width))
            inverse[y[::-1]], paces[y[::-1]] = self.inverse, self.late
            first = kinds + jobs + int(self.paced.sum())
            found[first::SIDES], found[first + 1 :: SIDES] = -gets - inverse, inverse - gets
        found[kinds + jobs :][: int(self.paced.sum())] = paces[self.paced]
        return found

    def scaled(self, rows: Floats, columns: Floats) -> Self:
        """G with rows and columns multiplied."""
        bounds, types, times, paces, cones = self._rows(rows)
        x, t, y = self._columns(columns)
        gets = cones[:, 0] if self.has_cones else paces
        return replace(
            self,
            bound=self.bound * bounds * x,
            hold=self.hold * types[self.kind] * x,
            time=self.time * times[self.job] * x[self.column],
            gets=self.gets * gets[self.job] * x[self.column],
            level=self.level * paces * t if self.has_level else self.level,
            late=self.late * paces * y if self.has_cones else self.late,
            inverse=self.inverse * cones[:, 0] * y if self.has_cones else self.inverse,
        )

    # -- systems -----------------------------------------------------------------------------------

    def solver(self, scaling: Scaling) -> Solve:
        """Solves Gᵀ z = a, G v − W² z = b.

        A little is added on the diagonal, so that nothing is divided by nothing; what that and
        rounding leave is solved for again, as long as it helps.
        """
        inner = (_InPairs if len(self.job) > len(self.kind) else _Apart)(self, scaling)

        def solve(a: Floats, b: Floats) -> tuple[Floats, Floats]:
            v, z = np.zeros(len(a)), np.zeros(len(b))
            off_a, off_b, before = a, b, np.inf
            enough = (1.0 + max(np.abs(a).max(), np.abs(b).max())) * EXACT
            for _ in range(REFINEMENTS):
                more_v, more_z = inner.solve(off_a, off_b)
                off_a = a - self.turned(z + more_z)
                off_b = b - self.times(v + more_v) + scaling.times(scaling.times(z + more_z))
                off = float(max(np.abs(off_a).max(), np.abs(off_b).max()))
                if not off < before:
                    break
                v, z = v + more_v, z + more_z
                if off < enough or off * HELPS > before:
                    break
                before = off
            return v, z

        return solve


class _Apart:
    """Where each column is of one job: a small system a job, and one that joins them.

    A job's unknowns are its x, then the duals of its time and of what it must get, then y and the
    duals of its cone. What joins them are the duals of the types, and t.
    """

    def __init__(self, g: JobMatrix, scaling: Scaling) -> None:
        self._g = g
        kinds, jobs, count = g.kinds, g.jobs, len(g.kind)
        numbers = scaling.numbers**2 + LITTLE
        self._of_bound = 1.0 / numbers[:count]
        shape = jobs, kinds
        side = kinds + 2 + (1 + SIDES) * g.has_cones
        block = np.zeros((jobs, side, side))
        x, time, pace = np.arange(kinds), kinds, kinds + 1
        block[:, x, x] = (g.bound**2 * self._of_bound + LITTLE).reshape(shape)
        block[:, x, time] = g.time.reshape(shape)
        block[:, time, time] = -numbers[count + kinds : count + kinds + jobs]
        block[:, pace, pace] = -1.0
        block[g.paced, pace, pace] = -numbers[count + kinds + jobs :]
        gets = g.gets.reshape(shape)
        if g.has_cones:
            y, first = pace + 1, pace + 2
            block[:, y, y] = LITTLE
            block[:, pace, y] = np.where(g.paced, g.late, 0.0)
            # the duals of cones are scaled: their blocks are of very different sizes
            self._unscale = _inverted(scaling.cones)
            one, other = self._unscale[:, :, 0], self._unscale[:, :, 1]
            block[:, :kinds, first:] = -gets[:, :, None] * (one + other)[:, None, :]
            block[:, y, first:] = -g.inverse[:, None] * (one - other)
            block[:, first:, first:] = -np.eye(SIDES)
        else:
            block[:, x, pace] = gets
        self._inverse = _balanced_inverse(np.tril(block.transpose(0, 2, 1), -1) + np.triu(block))
        joins = np.zeros((jobs, side, kinds + g.has_level))
        joins[:, x, x] = g.hold.reshape(shape)
        joint = np.diag(np.concatenate([-numbers[count : count + kinds], [LITTLE] * g.has_level]))
        if g.has_level:
            joins[g.paced, pace, kinds] = g.level[g.paced]
        self._joins, self._joined = joins, self._inverse @ joins
        self._joint = np.linalg.inv(joint - (joins.transpose(0, 2, 1) @ self._joined).sum(axis=0))

    def solve(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        g = self._g
        kinds, jobs = g.kinds, g.jobs
        bounds, types, times, paces, cones = g._rows(b)
        x, t, y = g._columns(a)
        x = x - g.bound * self._of_bound * bounds
        parts = [x.reshape(jobs, kinds), times[:, None], paces[:, None]]
        if g.has_cones:
            parts += [y[:, None], (self._unscale @ cones[:, :, None])[:, :, 0]]
        right = np.concatenate(parts, axis=1)
        found = (self._inverse @ right[:, :, None])[:, :, 0]
        joint = np.concatenate([types, [t] * g.has_level])
        joint = self._joint @ (joint - np.einsum("jsk,js->k", self._joins, found))
        found = found - self._joined @ joint
        x = found[:, :kinds].ravel()
        v, z = [x], [-self._of_bound * (g.bound * x + bounds), joint[:kinds], found[:, kinds]]
        z.append(found[g.paced, kinds + 1])
        if g.has_level:
            v.append(joint[kinds:])
        if g.has_cones:
            v.append(found[:, kinds + 2])
            z.append((self._unscale @ found[:, kinds + 3 :, None]).ravel())
        return np.concatenate(v), np.concatenate(z)


def _balanced_inverse(blocks: Floats) -> Floats:
    """Inverses of symmetric matrices whose numbers are of very different sizes."""
    total = np.ones(blocks.shape[:2])
    for _ in range(BALANCED):
        by = 1.0 / np.sqrt(np.abs(blocks).max(axis=2))
        blocks = blocks * by[:, :, None] * by[:, None, :]
        total *= by
    found: Floats = np.linalg.inv(blocks) * total[:, :, None] * total[:, None, :]
    return found


def _inverted(cones: Floats) -> Floats:
    """W⁻¹ of each cone: J W J over the square of its size."""
    tail = np.sqrt((cones[:, 0, 1:] ** 2).sum(axis=1))
    size = (cones[:, 0, 0] - tail) * (cones[:, 0, 0] + tail)
    signs = np.array([1.0, -1.0, -1.0])
    found: Floats = cones * signs[:, None] * signs / size[:, None, None]
    return found


class _InPairs:
    """Where a column may be of two jobs: columns near 0 go, and what is left is one system."""

    def __init__(self, g: JobMatrix, scaling: Scaling) -> None:
        self._g = g
        count, rows = len(g.kind), g.height - len(g.kind)
        numbers = scaling.numbers**2 + LITTLE
        self._of_bound = 1.0 / numbers[:count]
        self._x = g.bound**2 * self._of_bound + LITTLE
        sums = g.sums()
        held = np.argsort(self._x, kind="stable")[:rows]
        held = held[self._x[held] < AWAY]
        self._near = np.ones(count, np.bool_)
        self._near[held] = False
        self._kept = np.concatenate([held, np.arange(count, g.width)])
        self._sums, kept = sums[:, :count][:, self._near], sums[:, self._kept]
        of_rows = np.zeros((rows, rows))
        plain = len(numbers) - count
        of_rows[np.arange(plain), np.arange(plain)] = numbers[count:]
        squares = scaling.cones @ scaling.cones + LITTLE * np.eye(SIDES)
        for cone, square in enumerate(squares):
            at = plain + SIDES * cone
            of_rows[at : at + SIDES, at : at + SIDES] = square
        of_rows += (self._sums / self._x[self._near]) @ self._sums.T
        of_kept = np.full(len(self._kept), LITTLE)
        of_kept[: len(held)] = self._x[held]
        whole = np.block([[np.diag(of_kept), kept.T], [kept, -of_rows]])
        self._inverse = _balanced_inverse(whole[None])[0]

    def solve(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        g = self._g
        count = len(g.kind)
        bounds = b[:count]
        a = a.copy()
        a[:count] -= g.bound * self._of_bound * bounds
        near = a[:count][self._near] / self._x[self._near]
        right = np.concatenate([a[self._kept], b[count:] - self._sums @ near])
        both = self._inverse @ right
        v, z = np.empty(g.width), both[len(self._kept) :]
        v[self._kept] = both[: len(self._kept)]
        v[:count][self._near] = near - (z @ self._sums) / self._x[self._near]
        x = v[:count]
        return v, np.concatenate([-self._of_bound * (g.bound * x + bounds), z])
