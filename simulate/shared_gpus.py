"""Units on the very same GPUs: their speeds change with their partners, and GPUs count once."""

from __future__ import annotations

from dlsched.core.units import RUNNING
from simulate.progress.strategy import Progress


class SharedGpus:
    """The units that share GPUs, as of the last look.

    Attributes:
        gpu_seconds: GPU-seconds that were held by one more unit than are counted busy.
    """

    def __init__(self, progress: Progress) -> None:
        self.gpu_seconds = 0.0
        self._progress = progress
        self._setting = progress.setting
        self._partners: dict[int, tuple[int, ...]] = {}
        self._second: dict[int, float] = {}  # since when rows hold GPUs that another is counted for

    @property
    def are_there(self) -> bool:
        """Does any unit share GPUs, or did one when it was last looked?"""
        return bool(self._partners or self._setting.occupancy.beside)

    def begins(self, row: int) -> None:
        """A unit has started, at the speed that it has beside its partners."""
        partners = self._setting.occupancy.beside.get(row)
        if partners:
            self._partners[row] = partners

    def leaves(self, row: int, now: float) -> None:
        """A unit is about to leave its GPUs."""
        since = self._second.pop(row, None)
        if since is not None:
            self.gpu_seconds += (now - since) * self._setting.table.gpus_now.item(row)

    def look(self, now: float) -> None:
        """A unit whose partners have changed runs at another speed from now on."""
        beside = self._setting.occupancy.beside
        if not beside and not self._partners:
            return
        before, self._partners = self._partners, dict(beside)
        for row in sorted({*before, *beside}):
            partners = beside.get(row, ())
            is_second = bool(partners) and partners[0] < row  # the first of them is counted
            if not is_second:
                self.leaves(row, now)
            elif row not in self._second:
                self._second[row] = now
            if partners != before.get(row, ()) and self._setting.table.status[row] == RUNNING:
                self._progress.change_speed(row, now)
