"""An interior-point method for linear and second-order cone programs that follows the path of ECOS.

    min c·v    subject to    s = h − G v,    s in K

K consists of numbers ≥ 0, followed by cones {(a, b, c): a ≥ ‖(b, c)‖}. Where a program has many
optima, or no objective, the answer of an interior-point solver depends on its path: where it
starts, how it centres, when it stops. The published simulators solved their programs with ECOS
(Domahidi, Chu, Boyd: "ECOS: An SOCP solver for embedded systems", ECC 2013). This method takes the
same steps: the self-dual embedding, Nesterov-Todd scaling, Mehrotra's predictor and corrector, and
the same constants. So it stops where ECOS does, to about six decimals.

A `Matrix` knows the structure of G, and how to solve linear systems with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import DlschedError

DONE = 1e-8  # tolerance of an optimum
NEAR = 1e-6  # tolerance that is accepted where no further progress is possible
STEPS = 100
KEEP_OFF = 0.99  # part of the longest step inside the cone that is taken
LONGEST, SHORTEST = 0.999, 1e-6  # bounds of a step
LEAST_CENTRING = 1e-4
EQUILIBRATIONS = 3
NOTHING = 1e-6  # smaller rows and columns are not scaled
ENDLESS = 1e13  # stands for an unbounded step
SIDES = 3  # dimension of a cone

Solve = Callable[[Floats, Floats], tuple[Floats, Floats]]


class Unsolved(DlschedError):
    """The program is infeasible, or the method makes no progress."""


class Matrix(Protocol):
    """The matrix G."""

    def times(self, v: Floats) -> Floats:
        """G v."""
        ...

    def turned(self, z: Floats) -> Floats:
        """Gᵀ z."""
        ...

    def largest(self) -> tuple[Floats, Floats]:
        """The largest absolute value of each row, and of each column."""
        ...

    def scaled(self, rows: Floats, columns: Floats) -> Self:
        """G with rows and columns multiplied."""
        ...

    def solver(self, scaling: Scaling) -> Solve:
        """A function that returns v, z with Gᵀ z = a and G v − W² z = b, for a and b."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling W, with W z = W⁻¹ s = λ.

    Attributes:
        numbers: its diagonal part, for the numbers ≥ 0.
        cones: its blocks, for the cones, [cone, 3, 3].
        by: λ.
    """

    numbers: Floats
    cones: Floats
    by: Floats

    def times(self, v: Floats) -> Floats:
        """W v."""
        count = len(self.numbers)
        found = np.empty(len(v))
        found[:count] = self.numbers * v[:count]
        if len(self.cones):
            found[count:] = (self.cones @ v[count:].reshape(-1, SIDES, 1)).ravel()
        return found


def solved(
    matrix: Matrix,
    c: Floats,
    h: Floats,
    cones: int = 0,
    *,
    check: Callable[[], None] = lambda: None,
) -> Floats:
    """The v at which ECOS would end.

    Args:
        matrix: G.
        c: costs of v.
        h: the right-hand side.
        cones: number of cones, which are the last rows, three rows each.
        check: called at every step.

    Raises:
        Unsolved: the program is infeasible, or the method makes no progress.
    """
    matrix, columns, rows = _equilibrated(matrix, len(c), len(h), cones)
    c, h = c / columns, h / rows
    search = _Search(matrix, c, h, _Cone(len(h) - SIDES * cones, cones))
    with np.errstate(all="ignore"):  # it gives up when a value is not a number
        try:
            return search.run(check) / columns
        except np.linalg.LinAlgError as error:
            raise Unsolved("the method makes no progress") from error


def _equilibrated(
    matrix: Matrix, width: int, height: int, cones: int
) -> tuple[Matrix, Floats, Floats]:
    """The matrix with rows and columns of about equal size (Ruiz), and the two scales."""
    columns, rows = np.ones(width), np.ones(height)
    for _ in range(EQUILIBRATIONS):
        of_rows, of_columns = matrix.largest()
        if cones:
            sums = of_rows[height - SIDES * cones :].reshape(-1, SIDES).sum(axis=1)
            of_rows[height - SIDES * cones :] = np.repeat(sums, SIDES)
        of_rows = np.where(of_rows < NOTHING, 1.0, np.sqrt(of_rows))
        of_columns = np.where(of_columns < NOTHING, 1.0, np.sqrt(of_columns))
        matrix = matrix.scaled(1.0 / of_rows, 1.0 / of_columns)
        columns, rows = columns * of_columns, rows * of_rows
    return matrix, columns, rows


class _Search:
    """The iterate: x, s, z and the embedding's τ, κ."""

    def __init__(self, matrix: Matrix, c: Floats, h: Floats, cone: _Cone) -> None:
        self._matrix, self._c, self._h, self._cone = matrix, c, h, cone
        solve = matrix.solver(cone.unit())
        self._x, r = solve(np.zeros(len(c)), h)
        self._s = cone.inside(-r)
        self._z = cone.inside(solve(-c, np.zeros(len(h)))[1])
        self._tau = self._kappa = 1.0

    def run(self, check: Callable[[], None]) -> Floats:
        """The optimum; where rounding prevents it, the last iterate within the wider tolerance."""
        near: Floats | None = None
        for _ in range(STEPS):
            check()
            turned = self._matrix.turned(self._z)
            off_x = -turned - self._c * self._tau
            off_z = self._s + self._matrix.times(self._x) - self._h * self._tau
            if self._is_done(off_x, off_z, DONE):
                return self._x / self._tau
            if self._is_done(off_x, off_z, NEAR):
                near = self._x / self._tau
            elif near is not None:
                return near
            size = max(float(np.linalg.norm(self._z)), 1.0)
            proves = float(self._h @ self._z) / size < -DONE
            if proves and np.linalg.norm(turned) / size < DONE and self._tau < self._kappa:
                raise Unsolved("the program is infeasible")
            self._step(off_x, off_z)
        raise Unsolved("the method makes no progress")

    def _is_done(self, off_x: Floats, off_z: Floats, done: float) -> bool:
        x, s, z, tau = self._x, self._s, self._z, self._tau
        size_x, size_s, size_z = (float(np.linalg.norm(v)) for v in (x, s, z))
        of_c, of_h = (max(1.0, float(np.linalg.norm(v))) for v in (self._c, self._h))
        if np.linalg.norm(off_z) / max(of_h + size_x + size_s, 1.0) / tau >= done:
            return False
        if np.linalg.norm(off_x) / max(of_c + size_z, 1.0) / tau >= done:
            return False
        cost, worth, gap = float(self._c @ x), -float(self._h @ z), float(s @ z)
        relative = math.inf
        if cost < 0:
            relative = gap * tau / -cost
        elif worth > 0:
            relative = gap * tau / worth
        return (cost < 0 or worth >= -done) and min(gap, relative) < done

    def _step(self, off_x: Floats, off_z: Floats) -> None:
        c, h, cone, tau, kappa = self._c, self._h, self._cone, self._tau, self._kappa
        scaling = cone.scaling(self._s, self._z)
        by = scaling.by
        solve = self._matrix.solver(scaling)
        off_tau = kappa + float(c @ self._x) + float(h @ self._z)
        mu = (float(self._s @ self._z) + kappa * tau) / (cone.degree + 1)
        x1, z1 = solve(-c, h)
        slope = kappa / tau - float(c @ x1) - float(h @ z1)
        # the predictor: the step without centring
        x2, z2 = solve(off_x, self._s - off_z)
        d_tau = (off_tau - kappa + float(c @ x2) + float(h @ z2)) / slope
        w_z = scaling.times(z2 + d_tau * z1)
        w_s = -w_z - by
        d_kappa = -kappa - kappa / tau * d_tau
        free = cone.longest(by, w_s, w_z, min(_until(tau, d_tau), _until(kappa, d_kappa)))
        centring = min(max((1.0 - free) ** 3, LEAST_CENTRING), 1.0)
        # the corrector: the step that is taken
        wanted = cone.product(by, by) + cone.product(w_s, w_z) - centring * mu * cone.one
        wanted = cone.divided(by, wanted)
        rest = 1.0 - centring
        x2, z2 = solve(rest * off_x, scaling.times(wanted) - rest * off_z)
        wanted_tau = kappa * tau + d_kappa * d_tau - centring * mu
        d_tau = (rest * off_tau - wanted_tau / tau + float(c @ x2) + float(h @ z2)) / slope
        d_kappa = -(wanted_tau + kappa * d_tau) / tau
        d_z = z2 + d_tau * z1
        w_z = scaling.times(d_z)
        w_s = -(wanted + w_z)
        longest = cone.longest(by, w_s, w_z, min(_until(tau, d_tau), _until(kappa, d_kappa)))
        length = KEEP_OFF * longest
        self._x = self._x + length * (x2 + d_tau * x1)
        self._s = self._s + length * scaling.times(w_s)
        self._z = self._z + length * d_z
        self._tau, self._kappa = tau + length * d_tau, kappa + length * d_kappa


def _until(value: float, change: float) -> float:
    """The multiple of a change at which a value reaches 0."""
    return -value / change if change < 0 else ENDLESS


class _Cone:
    """The cone K: its algebra, and the longest steps inside it.

    Attributes:
        degree: count of numbers and cones.
        one: the unit element.
    """

    def __init__(self, numbers: int, cones: int) -> None:
        self._numbers, self._cones = numbers, cones
        self.degree = numbers + cones
        self.one = np.concatenate([np.ones(numbers), np.tile([1.0, 0.0, 0.0], cones)])

    def _blocks(self, v: Floats) -> Floats:
        """The cones of a vector, [cone, 3]; writing to it writes to the vector."""
        return v[self._numbers :].reshape(-1, SIDES)

    def unit(self) -> Scaling:
        blocks = np.tile(np.eye(SIDES), (self._cones, 1, 1))
        return Scaling(np.ones(self._numbers), blocks, self.one)

    def inside(self, r: Floats) -> Floats:
        """A vector, moved along the unit element until it is well inside the cone."""
        blocks = self._blocks(r)
        height = blocks[:, 0] - np.linalg.norm(blocks[:, 1:], axis=1)
        least = min(r[: self._numbers].min(initial=np.inf), height.min(initial=np.inf))
        found: Floats = r + (1.0 + (-least if least <= 0 else -KEEP_OFF)) * self.one
        return found

    def scaling(self, s: Floats, z: Floats) -> Scaling:
        """The Nesterov-Todd scaling."""
        count = self._numbers
        numbers = np.sqrt(s[:count] / z[:count])
        by = np.sqrt(np.maximum(s * z, 0.0))
        if not self._cones:
            return Scaling(numbers, np.zeros((0, SIDES, SIDES)), by)
        of_s, of_z = self._blocks(s), self._blocks(z)
        size_s, size_z = _size(of_s), _size(of_z)
        unit_s, unit_z = of_s / size_s[:, None], of_z / size_z[:, None]
        gamma = np.sqrt((1.0 + (unit_s * unit_z).sum(axis=1)) / 2.0)
        w = (unit_s + unit_z * np.array([1.0, -1.0, -1.0])) / (2.0 * gamma[:, None])
        blocks = np.empty((self._cones, SIDES, SIDES))
        blocks[:, 0, 0] = w[:, 0]
        blocks[:, 0, 1:] = blocks[:, 1:, 0] = w[:, 1:]
        tail = w[:, 1:, None] * w[:, None, 1:]
        blocks[:, 1:, 1:] = np.eye(SIDES - 1) + tail / (1.0 + w[:, 0])[:, None, None]
        blocks *= np.sqrt(size_s / size_z)[:, None, None]
        self._blocks(by)[:] = (blocks @ of_z[:, :, None])[:, :, 0]
        return Scaling(numbers, blocks, by)

    def product(self, one: Floats, other: Floats) -> Floats:
        """The Jordan product one ∘ other."""
        found = one * other
        if self._cones:
            u, v, uv = self._blocks(one), self._blocks(other), self._blocks(found)
            uv[:, 0] = (u * v).sum(axis=1)
            uv[:, 1:] = u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:]
        return found

    def divided(self, by: Floats, v: Floats) -> Floats:
        """The u with by ∘ u = v."""
        found = np.empty(len(v))
        found[: self._numbers] = v[: self._numbers] / by[: self._numbers]
        if self._cones:
            b, k, quotient = self._blocks(by), self._blocks(v), self._blocks(found)
            along = (b[:, 1:] * k[:, 1:]).sum(axis=1)
            square = _size(b) ** 2
            quotient[:, 0] = (b[:, 0] * k[:, 0] - along) / square
            quotient[:, 1:] = ((along / b[:, 0] - k[:, 0]) / square)[:, None] * b[:, 1:]
            quotient[:, 1:] += k[:, 1:] / b[:, :1]
        return found

    def longest(self, by: Floats, w_s: Floats, w_z: Floats, most: float) -> float:
        """The longest step for s and z that stays inside the cone.

        Args:
            by: λ.
            w_s: the scaled direction of s.
            w_z: the scaled direction of z.
            most: an upper bound.
        """
        count = self._numbers
        for direction in (w_s, w_z):
            ahead = float((-direction[:count] / by[:count]).max(initial=1.0 / ENDLESS))
            most = min(most, 1.0 / ahead)
            if self._cones:
                most = min(most, self._longest_in_cones(by, direction))
        return min(max(most, SHORTEST), LONGEST)

    def _longest_in_cones(self, by: Floats, direction: Floats) -> float:
        b, d = self._blocks(by), self._blocks(direction)
        size = _size(b)
        unit = b / size[:, None]
        along = unit[:, 0] * d[:, 0] - (unit[:, 1:] * d[:, 1:]).sum(axis=1)
        aside = d[:, 1:] - ((along + d[:, 0]) / (unit[:, 0] + 1.0))[:, None] * unit[:, 1:]
        ahead = (np.linalg.norm(aside, axis=1) - along) / size
        return 1.0 / float(ahead.max(initial=1.0 / ENDLESS))


def _size(blocks: Floats) -> Floats:
    """√(a² − b² − c²)."""
    tail = np.sqrt((blocks[:, 1:] ** 2).sum(axis=1))
    size: Floats = np.sqrt((blocks[:, 0] - tail) * (blocks[:, 0] + tail))
    return size
