"""Notes taken while a replay runs: step series over time and stretches on nodes.

Both are optional, because a million jobs write many of them.
"""

from __future__ import annotations

from array import array

import numpy as np

from dlsched.core.cluster.occupancy import Placement
from simulate.results.tables import Segments, Timeline, Trajectories


class Recorder:
    """Collects a `Timeline`, `Segments`, and the `Trajectories` of elastic jobs.

    Attributes:
        keeps_timeline: collect the counts of GPUs and jobs over time.
        keeps_segments: collect when each unit had which GPUs.
        keeps_trajectories: collect what each elastic unit had over time.
    """

    def __init__(self, *, timeline: bool = True, segments: bool = True) -> None:
        self.keeps_timeline = timeline
        self.keeps_segments = segments
        self.keeps_trajectories = False
        self._last: dict[int, int] = {}  # where in `_trajectory` a unit's last note begins
        self._rows = array("q")
        self._trajectory = array("d")  # time, GPUs, batch size, goodput, in turn
        self._time = array("d")
        self._counts = array("q")  # allocated, total, running, waiting, waiting GPUs, in turn
        self._open: dict[int, tuple[Placement, float]] = {}
        self._where = array("q")  # job, node, gpus, in turn
        self._when = array("d")  # start, end, in turn

    def sample(self, now: float, counts: tuple[int, int, int, int, int]) -> None:
        """Note the counts that hold from now on; a later sample of the same moment replaces."""
        if not self.keeps_timeline:
            return
        if self._time and self._time[-1] == now:
            self._counts[-5:] = array("q", counts)
            return
        if self._counts and tuple(self._counts[-5:]) == counts:
            return
        self._time.append(now)
        self._counts.extend(counts)

    def began(self, row: int, placement: Placement, now: float) -> None:
        """A unit got GPUs."""
        if self.keeps_segments:
            self._open[row] = (placement, now)

    def ended(self, row: int, now: float) -> None:
        """A unit left its GPUs."""
        opened = self._open.pop(row, None)
        if opened is None:
            return
        placement, start = opened
        if now > start:
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                self._where.extend((row, node, mask.bit_count()))
                self._when.extend((start, now))

    def has(self, row: int, now: float, gpus: int, batch_size: float, goodput: float) -> None:
        """Note what an elastic unit has from now on.

        Args:
            row: the unit.
            now: the time.
            gpus: that it holds.
            batch_size: samples in all; NaN where it has none of its own.
            goodput: useful samples/s; NaN where unknown.
        """
        what = (float(gpus), batch_size, goodput)
        place = self._last.get(row, -1)
        if (
            place >= 0 and self._trajectory[place] == now
        ):  # a later note of the same moment replaces
            self._trajectory[place + 1 : place + 4] = array("d", what)
        elif place < 0 or tuple(self._trajectory[place + 1 : place + 4]) != what:
            self._last[row] = len(self._trajectory)
            self._rows.append(row)
            self._trajectory.extend((now, *what))

    def trajectories(self) -> Trajectories | None:
        """What elastic units had, in order of time; None when not collected."""
        if not self.keeps_trajectories:
            return None
        table = np.array(self._trajectory, np.float64).reshape(-1, 4)
        return Trajectories(
            job=np.array(self._rows, np.int64),
            time=table[:, 0],
            gpus=table[:, 1].astype(np.int64),
            batch_size=table[:, 2],
            goodput=table[:, 3],
        )

    def timeline(self) -> Timeline:
        """The step series so far."""
        counts = np.frombuffer(self._counts, np.int64).reshape(-1, 5) if self._counts else None
        columns = counts.T.copy() if counts is not None else np.zeros((5, 0), np.int64)
        return Timeline(
            time=np.array(self._time, np.float64),
            allocated_gpus=columns[0],
            total_gpus=columns[1],
            running_jobs=columns[2],
            waiting_jobs=columns[3],
            waiting_gpus=columns[4],
        )

    def segments(self, now: float) -> Segments | None:
        """The stretches so far, those still open cut off now; None when not collected."""
        if not self.keeps_segments:
            return None
        for row in list(self._open):
            self.ended(row, now)
        where = np.array(self._where, np.int64).reshape(-1, 3)
        when = np.array(self._when, np.float64).reshape(-1, 2)
        return Segments(
            job=where[:, 0], node=where[:, 1], gpus=where[:, 2], start=when[:, 0], end=when[:, 1]
        )
