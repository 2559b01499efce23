"""Predictions on the wire: moments with their intervals, and the outlook for a deadline."""

from __future__ import annotations

import math

from dlsched.core.scenarios import verdict_of
from dlsched.daemon.predictions import JobForecast
from dlsched.rpc.v1 import control_pb2


def put_moment(told: control_pb2.PredictedMoment, at: float, p10: float, p90: float) -> None:
    """Put in a predicted moment and its interval; NaN is left out."""
    for name, value in (("at", at), ("p10", p10), ("p90", p90)):
        if math.isfinite(value):
            setattr(told, name, value)


def put_deadline(
    told: control_pb2.DeadlineOutlook, forecast: JobForecast, deadline_at: float, job: int = 0
) -> None:
    """Put in how likely a job is to meet its deadline, and the earliest one that it would meet.

    Args:
        told: to put it in.
        forecast: of the job, with a chance to be on time.
        deadline_at: seconds since the epoch.
        job: its number; 0: it has none.
    """
    told.job, told.deadline_at, told.on_time = job, deadline_at, forecast.on_time
    told.verdict = verdict_of(forecast.on_time)
    if math.isfinite(forecast.end_p90):
        told.earliest_at = forecast.end_p90
    put_moment(told.end, forecast.end_at, forecast.end_p10, forecast.end_p90)
