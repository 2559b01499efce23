"""The matrix of a published program, for the interior-point method.

Columns are the time of a job or pair on a type (x); in some programs a common level of all jobs
(t); and for finish times one inverse throughput a job (y). Rows, in this order:

    −x ≤ 0                                       no time is negative
    Σ s x ≤ N           for every type           GPUs of the type
    Σ x ≤ 1             for every job            time of the job
    Σ a x + b t + d y ≤ …  for every required job   what it must get
    (u + y, u − y, 2), u = Σ f x, is a cone      y ≥ 1/u

Without pairs, a linear system with this matrix is reduced to one small matrix a job and one for all
types; with pairs, to one row for every sum over x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from simulate.published.gavel.interior_point import SIDES, Scaling, Solve

LITTLE = 7e-8  # added on the diagonal
REFINEMENTS = 10  # at most
HELPS = 6.0  # a refinement must divide the residual by at least this, or it is the last
EXACT = 1e-14  # relative residual at which refinement stops
BALANCED = 3  # rounds of balancing
AWAY = 1.0  # columns with a smaller weight are away from 0 and stay in the system


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMatrix:
    """G.

    Attributes:
        jobs: how many.
        gpu_type: GPU type of each column of x.
        job, column: the entries: which job has time in which column, in order of columns.
        bound: coefficients of −x ≤ 0, by column.
        hold: GPUs, by column.
        time: coefficients of the sums of time, by entry.
        gets: coefficients of a job's throughput, by entry.
        required: jobs that have a least throughput.
        level: b, by job; empty where there is no t.
        late: d, by job; empty where there is no y.
        inverse: coefficients of y in the cones, by job; empty where there is no y.
    """

    jobs: int
    type_count: int
    gpu_type: Ints
    job: Ints
    column: Ints
    bound: Floats
    hold: Floats
    time: Floats
    gets: Floats
    required: Bools
    level: Floats
    late: Floats
    inverse: Floats

    @property
    def has_level(self) -> bool:
        """Whether there is a column t."""
        return bool(len(self.level))

    @property
    def has_cones(self) -> bool:
        """Whether there is a column y for every job."""
        return bool(len(self.late))

    @property
    def width(self) -> int:
        """Columns."""
        return len(self.gpu_type) + self.has_level + len(self.late)

    @property
    def height(self) -> int:
        """Number of rows."""
        return (
            len(self.gpu_type)
            + self.type_count
            + self.jobs
            + int(self.required.sum())
            + SIDES * len(self.late)
        )

    # -- as a matrix -------------------------------------------------------------------------------

    def _of_job(self, values: Floats) -> Floats:
        """Sums over the entries of each job."""
        sums: Floats = np.bincount(self.job, values, self.jobs).astype(np.float64)
        return sums

    def _of_column(self, values: Floats) -> Floats:
        """Sums over the entries of each column."""
        sums: Floats = np.bincount(self.column, values, len(self.gpu_type)).astype(np.float64)
        return sums

    def _columns(self, v: Floats) -> tuple[Floats, float, Floats]:
        """x, t and y of a vector of columns."""
        count = len(self.gpu_type)
        t = float(v[count]) if self.has_level else 0.0
        return v[:count], t, v[count + self.has_level :]

    def _rows(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """The parts of a vector of rows: bounds, types, times, required throughputs, cones."""
        first = len(self.gpu_type)
        second, third = first + self.type_count, first + self.type_count + self.jobs
        fourth = third + int(self.required.sum())
        required_rows = np.zeros(self.jobs)
        required_rows[self.required] = z[third:fourth]
        cones = z[fourth:].reshape(-1, SIDES)
        return z[:first], z[first:second], z[second:third], required_rows, cones

    def times(self, v: Floats) -> Floats:
        """G v."""
        x, t, y = self._columns(v)
        there = x[self.column]
        gets = self._of_job(self.gets * there)
        required_rows = np.zeros(self.jobs) if self.has_cones else gets
        if self.has_level:
            required_rows = required_rows + self.level * t
        found = [
            -self.bound * x,
            np.bincount(self.gpu_type, self.hold * x, self.type_count),
            self._of_job(self.time * there),
        ]
        if self.has_cones:
            required_rows = required_rows + self.late * y
            inverse = self.inverse * y
            sides = np.stack([gets + inverse, gets - inverse, np.zeros(self.jobs)], axis=1)
            return np.concatenate([*found, required_rows[self.required], -sides.ravel()])
        return np.concatenate([*found, required_rows[self.required]])

    def turned(self, z: Floats) -> Floats:
        """Gᵀ z."""
        bounds, types, times, required_rows, cones = self._rows(z)
        gets = -(cones[:, 0] + cones[:, 1]) if self.has_cones else required_rows
        x = -self.bound * bounds + self.hold * types[self.gpu_type]
        x = x + self._of_column(self.time * times[self.job] + self.gets * gets[self.job])
        found = [x]
        if self.has_level:
            found.append(np.array([self.level @ required_rows]))
        if self.has_cones:
            found.append(self.late * required_rows - self.inverse * (cones[:, 0] - cones[:, 1]))
        return np.concatenate(found)

    def largest(self) -> tuple[Floats, Floats]:
        """The largest absolute value of each row, and of each column."""
        gets = np.zeros(self.jobs)
        np.maximum.at(gets, self.job, np.abs(self.gets))
        times, types = np.zeros(self.jobs), np.zeros(self.type_count)
        np.maximum.at(times, self.job, self.time)
        np.maximum.at(types, self.gpu_type, self.hold)
        required_rows = np.zeros(self.jobs) if self.has_cones else gets.copy()
        if self.has_level:
            required_rows = np.maximum(required_rows, np.abs(self.level))
        rows = [self.bound, types, times]
        x = np.maximum(self.bound, self.hold)
        np.maximum.at(x, self.column, np.maximum(self.time, np.abs(self.gets)))
        columns = [x]
        if self.has_level:
            columns.append(np.array([np.abs(self.level[self.required]).max()]))
        if self.has_cones:
            required_rows = np.maximum(required_rows, self.late)
            side = np.maximum(gets, self.inverse)
            rows += [
                required_rows[self.required],
                np.stack([side, side, np.zeros(self.jobs)], axis=1).ravel(),
            ]
            columns.append(np.maximum(self.late, self.inverse))
        else:
            rows.append(required_rows[self.required])
        return np.concatenate(rows), np.concatenate(columns)

    def sums(self) -> Floats:
        """All rows except the bounds −x ≤ 0, as an array [row, column]."""
        count, type_count, jobs = len(self.gpu_type), self.type_count, self.jobs
        found = np.zeros((self.height - count, self.width))
        found[self.gpu_type, np.arange(count)] = self.hold
        found[type_count + self.job, self.column] = self.time
        gets = np.zeros((jobs, self.width))
        gets[self.job, self.column] = self.gets
        required_rows = np.zeros((jobs, self.width)) if self.has_cones else gets.copy()
        if self.has_level:
            required_rows[:, count] = self.level
        if self.has_cones:
            y = count + self.has_level + np.arange(jobs), np.arange(jobs)
            inverse = np.zeros((jobs, self.width))
            inverse[y[::-1]], required_rows[y[::-1]] = self.inverse, self.late
            first = type_count + jobs + int(self.required.sum())
            found[first::SIDES], found[first + 1 :: SIDES] = -gets - inverse, inverse - gets
        found[type_count + jobs :][: int(self.required.sum())] = required_rows[self.required]
        return found

    def scaled(self, rows: Floats, columns: Floats) -> Self:
        """G with its rows and columns multiplied."""
        bounds, types, times, required_rows, cones = self._rows(rows)
        x, t, y = self._columns(columns)
        gets = cones[:, 0] if self.has_cones else required_rows
        return replace(
            self,
            bound=self.bound * bounds * x,
            hold=self.hold * types[self.gpu_type] * x,
            time=self.time * times[self.job] * x[self.column],
            gets=self.gets * gets[self.job] * x[self.column],
            level=self.level * required_rows * t if self.has_level else self.level,
            late=self.late * required_rows * y if self.has_cones else self.late,
            inverse=self.inverse * cones[:, 0] * y if self.has_cones else self.inverse,
        )

    # -- systems -----------------------------------------------------------------------------------

    def solver(self, scaling: Scaling) -> Solve:
        """A function that solves Gᵀ z = a, G v − W² z = b.

        A small number is added on the diagonal, so that the system is never singular. The residual
        of this and of rounding is solved for again, as long as it shrinks.
        """
        inner = (_InPairs if len(self.job) > len(self.gpu_type) else _Apart)(self, scaling)

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
    """Without pairs: one small system a job, and one that couples them.

    The unknowns of a job are its x, the duals of its time and of its required throughput, y, and
    the duals of its cone. The duals of the types and t couple the jobs.
    """

    def __init__(self, g: JobMatrix, scaling: Scaling) -> None:
        self._g = g
        type_count, jobs, count = g.type_count, g.jobs, len(g.gpu_type)
        numbers = scaling.numbers**2 + LITTLE
        self._of_bound = 1.0 / numbers[:count]
        shape = jobs, type_count
        side = type_count + 2 + (1 + SIDES) * g.has_cones
        block = np.zeros((jobs, side, side))
        x, time, bound_row = np.arange(type_count), type_count, type_count + 1
        block[:, x, x] = (g.bound**2 * self._of_bound + LITTLE).reshape(shape)
        block[:, x, time] = g.time.reshape(shape)
        block[:, time, time] = -numbers[count + type_count : count + type_count + jobs]
        block[:, bound_row, bound_row] = -1.0
        block[g.required, bound_row, bound_row] = -numbers[count + type_count + jobs :]
        gets = g.gets.reshape(shape)
        if g.has_cones:
            y, first = bound_row + 1, bound_row + 2
            block[:, y, y] = LITTLE
            block[:, bound_row, y] = np.where(g.required, g.late, 0.0)
            # the duals of cones are scaled: their blocks are of very different sizes
            self._unscale = _inverted(scaling.cones)
            one, other = self._unscale[:, :, 0], self._unscale[:, :, 1]
            block[:, :type_count, first:] = -gets[:, :, None] * (one + other)[:, None, :]
            block[:, y, first:] = -g.inverse[:, None] * (one - other)
            block[:, first:, first:] = -np.eye(SIDES)
        else:
            block[:, x, bound_row] = gets
        self._inverse = _balanced_inverse(np.tril(block.transpose(0, 2, 1), -1) + np.triu(block))
        joins = np.zeros((jobs, side, type_count + g.has_level))
        joins[:, x, x] = g.hold.reshape(shape)
        joint = np.diag(
            np.concatenate([-numbers[count : count + type_count], [LITTLE] * g.has_level])
        )
        if g.has_level:
            joins[g.required, bound_row, type_count] = g.level[g.required]
        self._joins, self._joined = joins, self._inverse @ joins
        self._joint = np.linalg.inv(joint - (joins.transpose(0, 2, 1) @ self._joined).sum(axis=0))

    def solve(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        g = self._g
        type_count, jobs = g.type_count, g.jobs
        bounds, types, times, required_rows, cones = g._rows(b)
        x, t, y = g._columns(a)
        x = x - g.bound * self._of_bound * bounds
        parts = [x.reshape(jobs, type_count), times[:, None], required_rows[:, None]]
        if g.has_cones:
            parts += [y[:, None], (self._unscale @ cones[:, :, None])[:, :, 0]]
        right = np.concatenate(parts, axis=1)
        found = (self._inverse @ right[:, :, None])[:, :, 0]
        joint = np.concatenate([types, [t] * g.has_level])
        joint = self._joint @ (joint - np.einsum("jsk,js->k", self._joins, found))
        found = found - self._joined @ joint
        x = found[:, :type_count].ravel()
        v, z = (
            [x],
            [-self._of_bound * (g.bound * x + bounds), joint[:type_count], found[:, type_count]],
        )
        z.append(found[g.required, type_count + 1])
        if g.has_level:
            v.append(joint[type_count:])
        if g.has_cones:
            v.append(found[:, type_count + 2])
            z.append((self._unscale @ found[:, type_count + 3 :, None]).ravel())
        return np.concatenate(v), np.concatenate(z)


def _balanced_inverse(blocks: Floats) -> Floats:
    """Inverses of symmetric matrices whose entries differ by many orders of magnitude."""
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
    """With pairs: columns near 0 are eliminated, and the rest is one system."""

    def __init__(self, g: JobMatrix, scaling: Scaling) -> None:
        self._g = g
        count, rows = len(g.gpu_type), g.height - len(g.gpu_type)
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
        count = len(g.gpu_type)
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
