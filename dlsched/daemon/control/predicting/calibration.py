"""How exact first predictions were: by what they rested on, by policy, and by class of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median, quantiles
from typing import NamedTuple

from dlsched.db.reading.outcomes import PredictedStart
from dlsched.rpc.v1 import control_pb2

LEAST_S = 60.0  # a predicted time is no shorter, where an error is divided by it
OLDER = "not recorded"  # the policy of a prediction of an older release
SIZES = ((1, "1 GPU"), (4, "2-4 GPUs"), (8, "5-8 GPUs"))


class _Compared(NamedTuple):
    """A predicted moment beside the true one, in seconds since the epoch."""

    made_at: float
    predicted: float
    p10: float | None
    p90: float | None
    true: float

    @property
    def error(self) -> float:
        return self.true - self.predicted


def calibration_of(found: Sequence[PredictedStart]) -> control_pb2.CalibrationReply:
    """The errors in groups."""
    return control_pb2.CalibrationReply(
        by_basis=_grouped(found, lambda each: each.prediction.basis),
        by_policy=_grouped(found, lambda each: each.prediction.policy or OLDER),
        by_class=_grouped(found, _class_of),
    )


def _class_of(each: PredictedStart) -> str:
    """`2-4 GPUs, time limit`: the size of a job, and what its own duration came from."""
    gpus, source = each.prediction.gpus, each.prediction.source
    if gpus is None:
        return OLDER
    size = next((name for most, name in SIZES if gpus <= most), "9 GPUs or more")
    return f"{size}, {source}"


def _grouped(
    found: Iterable[PredictedStart], name: Callable[[PredictedStart], str]
) -> list[control_pb2.CalibrationView]:
    groups: dict[str, list[PredictedStart]] = {}
    for each in found:
        groups.setdefault(name(each), []).append(each)
    return [_view(group, groups[group]) for group in sorted(groups)]


def _view(name: str, some: Sequence[PredictedStart]) -> control_pb2.CalibrationView:
    starts, ends = list(map(_start, some)), [end for each in some if (end := _end(each))]
    errors = [each.error for each in starts]
    sizes = [abs(error) for error in errors]
    view = control_pb2.CalibrationView(
        basis=name,
        jobs=len(some),
        mean_error_s=fmean(errors),
        median_abs_error_s=median(sizes),
        p90_abs_error_s=quantiles(sizes, n=10, method="inclusive")[-1]
        if len(sizes) > 1
        else sizes[0],
        mean_lead_s=fmean(each.predicted - each.made_at for each in starts),
        ended=len(ends),
    )
    for what, compared in (("start", starts), ("end", ends)):
        within = [
            each.p10 <= each.true <= each.p90
            for each in compared
            if each.p10 is not None and each.p90 is not None
        ]
        if within:
            setattr(view, f"{what}_within", fmean(within))
        if compared:
            setattr(view, f"{what}_relative", median(map(_relative, compared)))
    return view


def _start(each: PredictedStart) -> _Compared:
    told = each.prediction
    return _Compared(told.made_at, told.start_at, told.start_p10, told.start_p90, each.started_at)


def _end(each: PredictedStart) -> _Compared | None:
    told = each.prediction
    if told.end_at is None or each.ended_at is None:
        return None
    return _Compared(told.made_at, told.end_at, told.end_p10, told.end_p90, each.ended_at)


def _relative(each: _Compared) -> float:
    """The error over the predicted time."""
    return abs(each.error) / max(each.predicted - each.made_at, LEAST_S)
