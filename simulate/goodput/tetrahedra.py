"""Looking points up in a Delaunay triangulation, a few of them.

Measurements lie on a lattice, so that a triangulation has flat tetrahedra, and beside them faces
whose two sides do not interpolate alike. Which side a point on such a face is on, the way of the
search decides. So this goes the way that scipy goes, up the paraboloid and then from tetrahedron to
tetrahedron through the face beyond which the point is. It only solves for all of them at once,
where scipy solves for one after another, which takes longer than many a replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats

__all__ = ["Tetrahedra"]

EPS = 100 * float(np.finfo(np.float64).eps)
BROAD_EPS = EPS**0.5
SINGULAR = 1000 * float(np.finfo(np.float64).eps)  # reciprocal condition of what cannot be solved


class Tetrahedra:
    """A triangulation of points in three dimensions."""

    def __init__(self, points: Floats) -> None:
        """Triangulate."""
        # scipy takes longer to load than many a replay to run, and most shapes were measured
        from scipy.spatial import Delaunay  # noqa: PLC0415

        self._mesh: Any = Delaunay(points)
        self._cells = self._mesh.simplices.tolist()
        self._neighbours = self._mesh.neighbors.tolist()
        self._planes = self._mesh.equations
        self._base = points[self._mesh.simplices[:, 3]]
        self._inverse = self._solve(points)
        # what lies beside flat ones, and what a point's weights must be to be in it or so close to
        # the face between them
        flat = np.flatnonzero(np.isnan(self._inverse[:, 0, 0]))
        beside, among = self._mesh.neighbors[flat].ravel(), np.repeat(flat, 4)
        self._flat, self._beside = among[beside >= 0], beside[beside >= 0]
        between = self._mesh.neighbors[self._beside] == self._flat[:, None]
        self._least = np.where(between, -BROAD_EPS, -EPS)

    def find(self, point: Floats) -> tuple[list[int], Floats] | None:
        """The corners around a point and its weights on them; None outside.

        Args:
            point: three coordinates.
        """
        low, high = self._mesh.min_bound - EPS, self._mesh.max_bound + EPS
        if (point < low).any() or (point > high).any():
            return None
        cell = self._climb(point)
        for _ in range(1 + len(self._cells) // 4):
            weights = self._weights(cell, point)
            if np.isnan(weights).any():
                break
            beyond = np.flatnonzero(weights < -EPS)
            if not beyond.size:
                if (weights > 1 + EPS).any():
                    break
                return self._cells[cell], weights
            cell = self._neighbours[cell][int(beyond[0])]
            if cell < 0:
                return None
        return self._search(point)

    def _climb(self, point: Floats) -> int:
        """Near the tetrahedron, over the planes of the lifted ones."""
        height = float(point @ point) * self._mesh.paraboloid_scale + self._mesh.paraboloid_shift
        lifted = np.append(point, height)
        distance = self._planes[:, :-1] @ lifted + self._planes[:, -1]
        cell, best = 0, distance.item(0)
        moves = True
        while moves and best <= 0:
            moves = False
            for side in range(4):  # of whichever tetrahedron it has come to
                beside = self._neighbours[cell][side]
                if beside >= 0 and distance.item(beside) > best + EPS * (1 + abs(best)):
                    cell, best, moves = beside, distance.item(beside), True
        return int(cell)

    def _weights(self, cell: int, point: Floats) -> Floats:
        """Weights of the four corners; NaN for a flat tetrahedron."""
        three = self._inverse[cell] @ (point - self._base[cell])
        return np.append(three, 1.0 - three.sum())

    def _solve(self, points: Floats) -> Floats:
        """From a point, relative to a tetrahedron's last corner, to its weights; NaN where flat."""
        corners = points[self._mesh.simplices]
        edges = (corners[:, :3] - corners[:, 3:]).transpose(0, 2, 1)
        flat = np.abs(np.linalg.det(edges)) == 0
        inverse = np.linalg.inv(np.where(flat[:, None, None], np.eye(3), edges))
        size = np.linalg.norm(edges, 1, axis=(1, 2)) * np.linalg.norm(inverse, 1, axis=(1, 2))
        inverse[flat | (1 / size < SINGULAR)] = np.nan
        return inverse

    def _search(self, point: Floats) -> tuple[list[int], Floats] | None:
        """The first that the point is in, where the way there led through a flat one."""
        three = np.einsum("cij,cj->ci", self._inverse, point - self._base)
        weights = np.concatenate([three, 1.0 - three.sum(axis=1, keepdims=True)], axis=1)
        holds: Bools = np.logical_and(weights >= -EPS, weights <= 1 + EPS).all(axis=1)
        first = int(holds.argmax()) if holds.any() else len(weights)
        beside = weights[self._beside]
        close = np.logical_and(beside >= self._least, beside <= 1 + EPS).all(axis=1)
        broadly: Bools = np.logical_and(close, self._flat < first)
        if broadly.any():
            first = self._beside.item(int(broadly.argmax()))
        return (self._cells[first], weights[first]) if first < len(weights) else None
