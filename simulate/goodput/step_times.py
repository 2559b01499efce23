"""How long a training step really takes: tables of measurements, and what lies between them.

A job on GPUs of several nodes has a *shape*, the replicas on each node in rank order. Shapes that
are rotations of each other are the same ring, so the smallest rotation names them. A shape that
was measured is interpolated over the samples of a replica; any other one over the numbers of
nodes, replicas and samples, on the Delaunay triangulation of all measurements.

Source: the published artifact of Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, plural
from dlsched.policies.blas import one_thread

FLAT = 1000 * np.finfo(np.float64).eps  # condition of a cell that counts as flat, as in scipy

Shape = tuple[int, ...]  # replicas on each node, in rank order


class StepTime(NamedTuple):
    """Seconds of a pass that synchronises, and those of them in which it does."""

    step_s: float
    sync_s: float


class SpreadMeasurement(NamedTuple):
    """A measurement of which only the numbers of nodes and replicas are known."""

    nodes: int
    replicas: int
    local: int
    time: StepTime


def ring_of(shape: Shape) -> Shape:
    """The smallest rotation of a shape."""
    if len(shape) == 1:
        return shape
    return min(shape[first:] + shape[:first] for first in range(len(shape)))


class StepTimes:
    """Measured times of one application."""

    def __init__(
        self,
        name: str,
        shapes: Mapping[Shape, Sequence[tuple[int, StepTime]]],
        spread: Sequence[SpreadMeasurement] = (),
        most_nodes: int = 16,
    ) -> None:
        """Take in the tables.

        Args:
            name: of the application, for messages.
            shapes: samples a replica and times, by smallest rotation, samples ascending.
            spread: measurements of shapes that are not among those, in the order of their file.
            most_nodes: shapes on more nodes take as long as on so many.
        """
        self.name = name
        self._columns = {
            shape: (
                np.array([local for local, _ in rows], np.float64),
                np.array([time.step_s for _, time in rows]),
                np.array([time.sync_s for _, time in rows]),
            )
            for shape, rows in shapes.items()
        }
        self._shapes, self._spread, self._most_nodes = shapes, spread, most_nodes
        self._between: _Between | None = None
        self._known: dict[tuple[Shape, int], StepTime] = {}

    @property
    def tables(self) -> object:
        """All measurements, as plain values."""
        return sorted((shape, tuple(rows)) for shape, rows in self._shapes.items()), self._spread

    def at(self, shape: Shape, local: int) -> StepTime:
        """The time of a step with these replicas on each node, and `local` samples in each pass.

        Raises:
            BadInput: it lies outside of everything that was measured.
        """
        key = (shape, local)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(shape, local)
        return known

    def _look_up(self, shape: Shape, local: int) -> StepTime:
        columns = self._columns.get(ring_of(shape))
        if columns is None:
            if self._between is None:
                self._between = _Between(*self.points())
            nodes = min(len(shape), self._most_nodes)
            step, sync = self._between.at(nodes, sum(shape), local)
        else:
            sizes, steps, syncs = columns
            step = float(np.interp(local, sizes, steps, left=np.nan, right=np.nan))
            sync = float(np.interp(local, sizes, syncs, left=np.nan, right=np.nan))
        if not (np.isfinite(step) and step > 0 and sync < step):
            raise BadInput(
                f"the profile of {self.name} has no time of {plural(local, 'sample')} on each of "
                f"{plural(sum(shape), 'GPU')} as {'-'.join(map(str, shape))}, nor any around it"
            )
        return StepTime(step, sync)

    def points(self) -> tuple[Floats, Floats]:
        """All measurements: those of shapes averaged by their counts, then the spread ones."""
        found: dict[tuple[int, int, int], list[StepTime]] = {}
        for shape, rows in self._shapes.items():
            for local, time in rows:
                found.setdefault((len(shape), sum(shape), local), []).append(time)
        points = sorted(found)
        times = [np.mean(found[point], axis=0) for point in points]
        points += [(each.nodes, each.replicas, each.local) for each in self._spread]
        times += [np.array(each.time) for each in self._spread]
        return np.array(points, np.float64), np.array(times)


class _Between:
    """Linear interpolation on the tetrahedra of a Delaunay triangulation."""

    def __init__(self, points: Floats, times: Floats) -> None:
        # scipy takes longer to load than many a replay to run, and most shapes were measured
        with one_thread():
            from scipy.spatial import Delaunay, QhullError  # noqa: PLC0415

        self._mesh, self._times = None, times
        try:
            mesh = Delaunay(points)
        except (QhullError, ValueError):  # too few, or in a plane: nothing lies between them
            return
        # Which of several cells around a point is found decides the time, since flat ones lie
        # between them: so scipy looks. It would invert each cell by itself, at many times the cost.
        mesh._transform = _to_weights(points[mesh.simplices])
        self._mesh = mesh

    def at(self, nodes: int, replicas: int, local: int) -> tuple[float, float]:
        """Step and synchronising time; NaN outside of all measurements."""
        point = np.array([nodes, replicas, local], np.float64)
        cell = -1 if self._mesh is None else int(self._mesh.find_simplex(point[None])[0])
        if self._mesh is None or cell < 0:
            return np.nan, np.nan
        to_weights = self._mesh.transform[cell]
        weights = to_weights[:3] @ (point - to_weights[3])
        corners = self._times[self._mesh.simplices[cell]]
        step, sync = np.append(weights, 1.0 - weights.sum()) @ corners
        return float(step), float(sync)


def _to_weights(corners: Floats) -> Floats:
    """What leads from a point to its weights in each cell; NaN for flat cells.

    `corners` is [cell, corner, coordinate].

    Returns:
        the inverse of the edges from the last corner, and that corner, as `Delaunay.transform`.
    """
    last = corners[:, -1:]
    edges = (corners[:, :-1] - last).transpose(0, 2, 1)
    flat = np.linalg.det(edges) == 0
    edges[flat] = np.eye(edges.shape[1])
    inverse = np.linalg.inv(edges)
    size = np.abs(edges).sum(axis=1).max(axis=1) * np.abs(inverse).sum(axis=1).max(axis=1)
    found = np.concatenate([inverse, last], axis=1)
    found[flat | (1.0 / size < FLAT)] = np.nan
    return np.asarray(found)
