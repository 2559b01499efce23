"""Reading the profiles of applications from a folder of tables.

    applications.csv   application,init_batch_size,max_batch_size,min_local_bsz,max_local_bsz,
                       max_epochs
    placements.csv     application,placement,local_bsz,step_time,sync_time
    scalability.csv    application,num_nodes,num_replicas,local_bsz,step_time,sync_time
    validation.csv     application,batch_size,epoch_index,progress,iteration,grad_sqr,grad_var

Each may be packed (`.csv.gz`). A placement is written as the replicas on each node, one digit each;
`scalability`, which may be missing, has shapes of which only the counts are known. Times are
seconds. A column `fixed_batch_size` of `applications`, where it is given, is a batch size that no
job changes.

Source: the layout of the published artifact of Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, plural
from dlsched.core.goodput.params import BatchLimits
from simulate.goodput.application import Application
from simulate.goodput.learning import Learning
from simulate.goodput.step_times import Shape, SpreadMeasurement, StepTime, StepTimes, ring_of
from simulate.traces.ledger import Ledger
from simulate.traces.table import Table, read_table

Key = tuple[str, str]  # application, GPU type

LIMITS = ("init_batch_size", "max_batch_size", "min_local_bsz", "max_local_bsz", "max_epochs")
TIMES = ("local_bsz", "step_time", "sync_time")
RUNS = ("batch_size", "epoch_index", "progress", "iteration", "grad_sqr", "grad_var")

# The published simulator trains this model with one batch size, on one GPU, under every policy that
# chooses batch sizes: its metric suffers from any other.
FIXED_BATCH = {"ncf": 32768}


def holds_applications(folder: Path) -> bool:
    """Is this a folder of such tables?"""
    return folder.is_dir() and find_table(folder, "applications") is not None


def read_applications(folder: Path) -> dict[str, Application]:
    """Read a folder, by application.

    Raises:
        BadInput: one line with file and line number: a table or column is missing, a number is not
            one or cannot be, rows contradict each other, an application lacks measurements.
    """
    table = profile_table(folder, "applications", LIMITS, {"fixed_batch_size"})
    times = _step_times(folder)
    learning = learning_of(folder)
    found: dict[str, Application] = {}
    fixed = table.number("fixed_batch_size")
    for row, name in enumerate(table.text("application").tolist()):
        where = f"{table.ledger.path}:{int(table.lines[row])}"
        numbers = [_whole(table, row, column) for column in LIMITS]
        initial, maximum, local_min, local_max, epochs = numbers
        BatchLimits.of(initial, maximum, local_min, local_max, what=f"{where}: {name}")
        if name in found:
            raise BadInput(f"{where}: {name} is there twice")
        if name not in times:
            raise BadInput(f"{where}: {name} has no step times in {folder}/placements.csv")
        if name not in learning:
            raise BadInput(f"{where}: {name} has no runs in {folder}/validation.csv")
        known = learning[name]
        if not 1 <= epochs <= known.epochs:
            raise BadInput(
                f"{where}: {name} ends after {plural(epochs, 'epoch')}, its validation runs have "
                f"{known.epochs}"
            )
        if not known.sizes[0] <= initial <= known.sizes[-1]:
            raise BadInput(
                f"{where}: {name} begins with batches of {initial}, its validation runs have "
                f"{known.sizes[0]} to {known.sizes[-1]}"
            )
        own = fixed[row]
        found[name] = Application(
            name=name,
            initial=initial,
            maximum=maximum,
            local_min=local_min,
            local_max=local_max,
            epochs=epochs,
            times=times[name],
            learning=known,
            fixed_batch=FIXED_BATCH.get(name) if np.isnan(own) else int(own),
        )
    if not found:
        raise BadInput(f"{table.ledger.path}: holds no applications")
    return found


def find_table(folder: Path, name: str) -> Path | None:
    """A table of a folder, packed or not; None where there is none."""
    for suffix in (".csv", ".csv.gz"):
        if (folder / (name + suffix)).is_file():
            return folder / (name + suffix)
    return None


def profile_table(
    folder: Path,
    name: str,
    numbers: tuple[str, ...],
    optional: frozenset[str] | set[str] = frozenset(),
) -> Table:
    """Read one table; its numbers are finite and not negative.

    Args:
        folder: of the profile.
        name: of the table, without the ending.
        numbers: columns that must be there and hold numbers.
        optional: further columns of numbers.

    Raises:
        BadInput: it is not there, a column is missing, a number is not one.
    """
    path = find_table(folder, name)
    if path is None:
        raise BadInput(f"{folder}: a folder of profiles needs {name}.csv or {name}.csv.gz")
    ledger = Ledger(path, skip_bad_rows=False)
    text = ("application", "placement") if name == "placements" else ("application",)
    table = read_table(
        path, ledger, numbers={*numbers, *optional}, required=(*text, *numbers), unique=()
    )
    for column in numbers:
        values = table.number(column)
        wrong = np.flatnonzero(~np.isfinite(values) | (values < 0))
        table.refuse(
            wrong,
            f"{column} is not a number",
            lambda row, column=column, values=values: (  # type: ignore[misc]  # bound at once
                f"{column} must be a number from 0 up, not {values[row]:g}"
            ),
        )
    return table


def _whole(table: Table, row: int, column: str) -> int:
    value = float(table.number(column)[row])
    if value != int(value) or value < 0:
        raise BadInput(
            f"{table.ledger.path}:{int(table.lines[row])}: {column} must be a whole number, "
            f"not {value:g}"
        )
    return int(value)


def _step_times(folder: Path) -> dict[str, StepTimes]:
    shapes: dict[str, dict[Shape, dict[int, StepTime]]] = {}
    for where, (name, _), shape, time, local in placed_times(folder):
        measured = shapes.setdefault(name, {}).setdefault(shape, {})
        if measured.setdefault(local, time) != time:
            on = "-".join(map(str, shape))
            raise BadInput(f"{where}: {name} on {on} with {local} samples is there twice")
    spread: dict[str, list[SpreadMeasurement]] = {}
    for (name, _), measurement in spread_times(folder):
        spread.setdefault(name, []).append(measurement)
    return {
        name: StepTimes(
            name,
            {shape: sorted(rows.items()) for shape, rows in mine.items()},
            spread.get(name, ()),
        )
        for name, mine in shapes.items()
    }


def placed_times(
    folder: Path, pipelines: Collection[str] = ()
) -> Iterator[tuple[str, Key, Shape, StepTime, int]]:
    """The rows of `placements`: file and line, whose, where, times, samples; see `_timed`."""
    table = profile_table(folder, "placements", TIMES)
    texts = table.text("placement").tolist()
    for row, (key, time, local) in enumerate(_timed(table, pipelines)):
        where = f"{table.ledger.path}:{int(table.lines[row])}"
        if not texts[row].isdecimal() or "0" in texts[row]:
            raise BadInput(f"{where}: placement must be digits from 1 to 9, not {texts[row]!r}")
        yield where, key, ring_of(tuple(map(int, texts[row]))), time, local


def spread_times(
    folder: Path, pipelines: Collection[str] = ()
) -> Iterator[tuple[Key, SpreadMeasurement]]:
    """The rows of `scalability`, if there is one; see `_timed`."""
    if find_table(folder, "scalability") is None:
        return
    table = profile_table(folder, "scalability", ("num_nodes", "num_replicas", *TIMES))
    nodes, replicas = table.number("num_nodes"), table.number("num_replicas")
    table.refuse(
        np.flatnonzero((nodes < 1) | (replicas < nodes)),
        "counts contradict each other",
        lambda row: f"{replicas[row]:g} replicas cannot be on {nodes[row]:g} nodes",
    )
    for row, (key, time, local) in enumerate(_timed(table, pipelines)):
        yield key, SpreadMeasurement(int(nodes[row]), int(replicas[row]), local, time)


def _timed(table: Table, pipelines: Collection[str]) -> Iterator[tuple[Key, StepTime, int]]:
    """Application and GPU type ("" without that column), times and samples, by row.

    The times of `pipelines` are of a part of a model, so that synchronising may exceed a step.
    """
    names = table.text("application")
    step, sync, local = (table.number(name) for name in ("step_time", "sync_time", "local_bsz"))
    table.refuse(np.flatnonzero(step <= 0), "step_time is 0", "step_time must be above 0")
    table.refuse(
        np.flatnonzero((sync >= step) & ~np.isin(names.astype(str), sorted(pipelines))),
        "sync_time is not below step_time",
        lambda row: f"sync_time {sync[row]:g} must be below step_time {step[row]:g}",
    )
    table.refuse(
        np.flatnonzero((local < 1) | (local != np.floor(local))),
        "local_bsz is not whole",
        lambda row: f"local_bsz must be a whole number from 1 up, not {local[row]:g}",
    )
    keys = zip(names.tolist(), table.text("gpu_type").tolist(), strict=True)
    times = map(StepTime, step.tolist(), sync.tolist())
    return zip(keys, times, local.astype(np.int64).tolist(), strict=True)


def learning_of(folder: Path) -> dict[str, Learning]:
    """The validation runs of a folder, by application.

    Raises:
        BadInput: one line with file and line number.
    """
    table = profile_table(folder, "validation", RUNS)
    columns = np.array([table.number(column) for column in RUNS])
    rows_of: dict[tuple[str, int], list[int]] = {}
    for row, (name, size) in enumerate(
        zip(table.text("application").tolist(), columns[0].tolist(), strict=True)
    ):
        rows_of.setdefault((name, int(size)), []).append(row)
    runs: dict[str, dict[int, Floats]] = {}
    for (name, size), rows in rows_of.items():
        run = columns[:, rows]
        _check_run(table, rows, run, f"{name} with batches of {size}")
        runs.setdefault(name, {})[size] = run
    return {name: _learnt(name, mine) for name, mine in runs.items()}


def _check_run(table: Table, rows: list[int], run: Floats, what: str) -> None:
    def refuse(place: int, why: str) -> None:
        raise BadInput(f"{table.ledger.path}:{int(table.lines[rows[place]])}: {what}: {why}")

    wrong = np.flatnonzero(run[1] != np.arange(len(rows)))
    if wrong.size:
        place = int(wrong[0])
        refuse(place, f"epoch_index must be {place} here, not {run[1][place]:g}")
    for column in (2, 3):
        falls = np.flatnonzero(np.diff(run[column], prepend=0.0) <= 0)
        if falls.size:
            place = int(falls[0])
            refuse(place, f"{RUNS[column]} must grow, not be {run[column][place]:g}")
    none = np.flatnonzero(run[5] <= 0)
    if none.size:
        refuse(int(none[0]), "grad_var must be above 0")


def _learnt(name: str, runs: Mapping[int, Floats]) -> Learning:
    sizes = sorted(runs)
    epochs = min(run.shape[1] for run in runs.values())
    table = np.stack([runs[size][2:, :epochs] for size in sizes])
    return Learning(name, sizes, table[:, 0], table[:, 1], table[:, 2], table[:, 3])
