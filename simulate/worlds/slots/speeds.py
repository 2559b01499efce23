"""How fast models train with so many parameter servers and workers, from measured points.

Between and beyond the points z_i at x_i = (servers, workers), the speed is the linear radial-basis
interpolation Σ c_i·|x - x_i| with the c for which it is z_i at every x_i (Peng et al., DL2). Beyond
the points it goes on linearly, which may be far from the truth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput
from simulate.bounded_tables import FINITE, WHOLE_FROM_1, read_rows, rows_of
from simulate.traces.textfile import first_line

MEASURED, TABULATED = "speed_sum_batches_s", "speed_rbf"
PLACE = ("model", "num_ps", "num_workers")


class SpeedSurface:
    """Batches per second, summed over workers, by model, servers and workers."""

    def __init__(self, tables: dict[str, Floats]) -> None:
        """Take tables by model, [servers, workers]; the row and the column 0 are not used."""
        self._tables = tables

    def of(self, model: str) -> Floats:
        """The table of a model, [servers, workers]; row 0 and column 0 are 0.

        Raises:
            BadInput: the model was not measured.
        """
        found = self._tables.get(model)
        if found is None:
            known = ", ".join(sorted(self._tables))
            raise BadInput(f"no speeds of model {model!r}; there are those of {known}")
        return found


def interpolated(points: Floats, speeds: Floats, most: int) -> Floats:
    """The speeds at 1 to `most` servers and workers.

    Args:
        points: servers and workers that were measured, [point, 2], each pair once.
        speeds: of the points.
        most: size of the table.
    """
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    weights = np.linalg.solve(apart, speeds)
    numbers = np.arange(1, most + 1, dtype=np.float64)
    grid = np.stack(np.meshgrid(numbers, numbers, indexing="ij"), axis=-1)
    table = np.zeros((most + 1, most + 1))
    table[1:, 1:] = np.linalg.norm(grid[:, :, None] - points, axis=3) @ weights
    # what was measured is exact: else a job ends a slot later where a processor rounds otherwise
    inside = (points <= most).all(axis=1)
    table[tuple(points[inside].astype(int).T)] = speeds[inside]
    return table


def read_speeds(path: Path, most: int) -> SpeedSurface:
    """Read measured points (`speed_sum_batches_s`) or a whole table (`speed_rbf`), as CSV.

    Args:
        path: plain or gzip.
        most: the largest number of servers or workers that will be asked for.

    Raises:
        BadInput: one line with the file and the line number.
    """
    names = {name.strip() for name in first_line(path).split(",")}
    column = TABULATED if TABULATED in names and MEASURED not in names else MEASURED
    table = read_rows(
        path,
        {"num_ps": WHOLE_FROM_1, "num_workers": WHOLE_FROM_1, column: FINITE},
        required=(*PLACE, column),
        unique=(),
        nouns="speeds",
    )
    found: dict[str, dict[tuple[int, int], float]] = {}
    for where, row in rows_of(table, model=""):
        place, speed = (int(row["num_ps"]), int(row["num_workers"])), row[column]
        if found.setdefault(row["model"], {}).setdefault(place, speed) != speed:
            raise BadInput(f"{where}: {row['model']} was measured there before")
    return SpeedSurface(
        {name: _table(path, name, each, column, most) for name, each in found.items()}
    )


def _table(
    path: Path, model: str, speeds: dict[tuple[int, int], float], column: str, most: int
) -> Floats:
    points = np.array(list(speeds), np.float64)
    values = np.array(list(speeds.values()))
    if column == MEASURED:
        if len(values) < 3:
            raise BadInput(f"{path}: {model} has {len(values)} points; three or more are needed")
        return interpolated(points, values, most)
    table = np.full((most + 1, most + 1), np.nan)
    table[0], table[:, 0] = 0.0, 0.0
    for (servers, workers), speed in speeds.items():
        if servers <= most and workers <= most:
            table[servers, workers] = speed
    if np.isnan(table).any():
        raise BadInput(f"{path}: {model} lacks speeds; 1 to {most} servers and workers are needed")
    return table
