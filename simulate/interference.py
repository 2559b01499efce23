"""How jobs on the same GPUs slow each other down in a replay: the sources of `--interference`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, not_known
from dlsched.core.speed.colocation import ColocationTable, MeasuredPairs
from dlsched.core.speed.interference import Interference, NoInterference, TablePairs
from dlsched.core.speed.overlap import OverlappingJobs
from dlsched.core.speed.stages import MEASURED_FACTORS, MOST_TOGETHER, StagedJobs, Stages
from dlsched.core.speed.utilisation import LoadedGpus
from simulate.profiles.jobs import Profiled
from simulate.profiles.workloads import workloads
from simulate.traces.trace import Trace

SOURCES = ("none", "measured", "stages", "overlap", "utilisation")
STAGE_COLUMNS = tuple(f"{name}_ms" for name in Stages._fields)
STAGED = (*STAGE_COLUMNS, "iteration_ms")
PER_SECOND, WHOLE_PERCENT = 1000.0, 100.0


def interference_said(said: str | float | None) -> tuple[str, float]:
    """What a user says of interference: a source, or what neighbours on a node cost trainings.

    Returns:
        the source and the part of its speed that a training loses; "" and 0 for what is not said.

    Raises:
        BadInput: neither a source nor a part.
    """
    if said is None or str(said).partition(":")[0] in ("", *SOURCES):
        return str(said or ""), 0.0
    try:
        part = float(said)
    except ValueError:
        raise not_known("--interference:", str(said), SOURCES) from None
    if not 0 <= part < 1:
        raise BadInput(f"--interference must be at least 0 and less than 1, not {part:g}")
    return "", part


def interference_of(  # noqa: PLR0911  # one source a return
    name: str,
    trace: Trace,
    pairs: ColocationTable | None,
    jobs: Profiled | None,
    harmless: Sequence[str] = (),
) -> Interference | None:
    """Make the source of a run.

    Args:
        name: one of `SOURCES`, `stages` perhaps with its factors after a colon; "" takes what was
            measured of pairs, where anything was, else the stages of jobs that have them.
        trace: the jobs, with the columns that were measured of them.
        pairs: relative speeds of pairs.
        jobs: what a table of throughputs says of them.
        harmless: models that make no difference to the job beside them, nor it to them.

    Returns:
        None where nothing is said: jobs that may share GPUs are then as fast as alone, and policies
        know nothing of it.

    Raises:
        BadInput: an unknown name, or nothing was measured of what the source needs.
    """
    name, colon, factors = name.partition(":")
    if name not in ("", *SOURCES) or (colon and name != "stages"):
        raise not_known("--interference:", name, SOURCES)
    match name:
        case "none":
            return NoInterference()
        case "overlap":
            return _overlapping(trace)
        case "stages":
            return _staged(trace, _factors(factors) if colon else MEASURED_FACTORS)
        case "utilisation":
            return LoadedGpus(_column(trace, "gpu_util", name) / WHOLE_PERCENT)
    if pairs is not None:
        measured = MeasuredPairs(pairs, workloads(trace, pairs.keys))
        return HarmlessModels(measured, trace, harmless) if harmless else measured
    if jobs is not None and jobs.speed.has_pairs:
        return TablePairs(jobs.speed)
    if name == "measured":
        raise BadInput(
            "--interference measured: no speeds of pairs; --profiles needs a table with co_model, "
            "or one with model1,speed1,model2,speed2"
        )
    return _staged(trace) if all(_is_known(trace, each) for each in STAGED) else None


def _staged(trace: Trace, factors: tuple[float, ...] = MEASURED_FACTORS) -> StagedJobs:
    return StagedJobs(*_measured_stages(trace, "stages"), factors)


def _measured_stages(trace: Trace, source: str) -> tuple[Floats, Floats]:
    """Seconds of each job's stages, [job, stage], and of its iteration alone.

    Raises:
        BadInput: no job has one of them, or one is negative.
    """
    stages = np.stack([_column(trace, each, source) for each in STAGE_COLUMNS], axis=1)
    return stages / PER_SECOND, _column(trace, "iteration_ms", source) / PER_SECOND


def _overlapping(trace: Trace) -> OverlappingJobs:
    kinds = trace.columns.get("guarantee", np.full(len(trace), "", np.object_))
    is_opportunistic = np.asarray(kinds == "opportunistic", np.bool_)
    return OverlappingJobs(*_measured_stages(trace, "overlap"), is_opportunistic)


def _factors(text: str) -> tuple[float, ...]:
    """How many times longer 1, 2, … jobs on the same GPUs take, from "1.015,1.33,1.5,1.3".

    Raises:
        BadInput: not so many numbers above 0.
    """
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = ()
    if len(found) != MOST_TOGETHER or not all(0 < each < np.inf for each in found):
        raise BadInput(
            f"--interference stages:{text}: needs {MOST_TOGETHER} numbers above 0, how many times "
            "longer 1, 2, … jobs on the same GPUs take than planned"
        )
    return found


def _is_known(trace: Trace, name: str) -> bool:
    """Does any job have a number in this column?"""
    column: np.ndarray[Any, Any] | None = trace.columns.get(name)
    return column is not None and column.dtype != np.object_ and not np.isnan(column).all()


class HarmlessModels:
    """Measured pairs, but for models whose pairs count as if each job were alone."""

    name = "measured"
    most_together = MeasuredPairs.most_together

    def __init__(self, measured: MeasuredPairs, trace: Trace, models: Sequence[str]) -> None:
        """Take the measurements, the jobs, and the models that make no difference."""
        self._measured = measured
        known = trace.columns.get("model", np.full(len(trace), "", np.object_))
        self._is_harmless = np.isin(known.astype(str), models)

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """As measured, or the limits where a harmless job is among the rows."""
        if self._is_harmless[list(rows)].any():
            return limits
        return self._measured.relative(rows, limits, gpu_type, gpus)


def _column(trace: Trace, name: str, source: str) -> Floats:
    """A column of numbers, NaN where unknown.

    Raises:
        BadInput: no job has one, or one is negative.
    """
    if not _is_known(trace, name):
        raise BadInput(
            f"--interference {source}: no job of {trace.name} has {name}, in the trace or in "
            "--profiles"
        )
    column = trace.columns[name]
    wrong = np.flatnonzero(column < 0)
    if wrong.size:
        raise BadInput(
            f"{trace.name}: job {trace.job_id[wrong[0]]} has {name} {column[wrong[0]]:g}; "
            "it must be 0 or more"
        )
    return np.asarray(column, np.float64)
