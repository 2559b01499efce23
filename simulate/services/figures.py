"""What services had in a replay: requests in time, GPUs, and what they lent to trainings."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.services.response_times import one_queue
from simulate.results.summary import finite_or_none
from simulate.services.lending import Lending, Serving

POINTS = 256  # rates at which the share in time is computed; between them it is interpolated
HOUR = 3600.0


def service_figures(lending: Lending | None, end: float) -> dict[str, Any]:
    """The figures of `--summary-out`; none where no service runs.

    Args:
        lending: the services, after the run.
        end: of the run, in seconds.
    """
    if lending is None:
        return {}
    each = {serving.service.name: _of_one(serving, end) for serving in lending.all}
    total = {
        key: sum(figures[key] for figures in each.values())
        for key in ("requests", "in_time", "busy_s", "kept_s", "gpu_hours", "lent_gpu_hours")
    }
    return {
        "services": {
            "in_time_share": _part(total["in_time"], total["requests"]),
            "kept_share": _part(total["kept_s"], total["busy_s"]),
            "gpu_hours": total["gpu_hours"],
            "lent_gpu_hours": total["lent_gpu_hours"],
            "jobs_displaced": sum(serving.displaced for serving in lending.all),
            "by_service": {
                name: {
                    key: value
                    for key, value in figures.items()
                    if key not in ("in_time", "busy_s", "kept_s")
                }
                for name, figures in each.items()
            },
        }
    }


def _of_one(serving: Serving, end: float) -> dict[str, Any]:
    service = serving.service
    starts = np.array([each.start for each in serving.stretches])
    count = int(np.ceil(end / service.window_s))
    edges = np.unique(np.concatenate([starts, np.arange(count + 1) * service.window_s, [end]]))
    edges = edges[edges <= end]
    if len(edges) < 2 or not len(starts):
        edges = np.array([0.0, 0.0])
    lengths: Floats = np.diff(edges)
    arrived: Floats = np.diff(service.requests.expected(edges))
    rates = np.divide(arrived, lengths, out=np.zeros_like(arrived), where=lengths > 0)
    place = np.searchsorted(starts, edges[:-1], "right") - 1
    usable = np.array([each.usable for each in serving.stretches], np.int64)[place]
    gpus = np.array([each.gpus for each in serving.stretches], np.int64)[place]
    missing = np.array([each.missing for each in serving.stretches], np.bool_)[place]
    kept_up_to = np.concatenate([[0.0], _kept(serving)])
    busy: Bools = rates > 0
    in_time = float((_in_time(serving, usable, rates) * arrived).sum())
    held = float((gpus * lengths).sum())
    requests = float(arrived.sum())
    kept = busy & (rates <= kept_up_to[usable] * (1 + 1e-9))
    return {
        "requests": requests,
        "in_time": in_time,
        "busy_s": float(lengths[busy].sum()),
        "kept_s": float(lengths[kept].sum()),
        "sla_s": service.sla.within_s,
        "share": service.sla.share,
        "in_time_share": _part(in_time, requests),
        "kept_share": _part(float(lengths[kept].sum()), float(lengths[busy].sum())),
        "feasible": service.service_time.done_by(service.sla.within_s) >= service.sla.share,
        "avg_replicas": _part(held / service.gpus, float(lengths.sum())),
        "max_replicas": int(gpus.max(initial=0)) // service.gpus,
        "cold_starts": serving.starts,
        "missing_s": float(lengths[missing].sum()),
        "gpu_hours": held / HOUR,
        "lent_gpu_hours": service.most * service.gpus * float(lengths.sum()) / HOUR - held / HOUR,
    }


def _kept(serving: Serving) -> Floats:
    """The highest rate at which each number of replicas keeps the promise itself."""
    service = serving.service
    if service.service_time.done_by(service.sla.within_s) < service.sla.share:
        return np.zeros(service.most)
    return serving.demand.kept


def _in_time(serving: Serving, usable: np.ndarray[Any, Any], rates: Floats) -> Floats:
    """The part of the requests in time, with so many replicas at such rates."""
    service = serving.service
    found = np.zeros(len(rates))
    for replicas in np.unique(usable[usable > 0]).tolist():
        full = replicas / service.service_time.mean
        grid = full * (1 - np.linspace(1, 0, POINTS) ** 2)  # dense near full load
        shares = [
            one_queue(replicas, rate, service.service_time, service.sla.within_s)
            for rate in grid.tolist()
        ]
        of = usable == replicas
        found[of] = np.interp(rates[of], grid, shares, right=0.0)
    return found


def _part(value: float, whole: float) -> float | None:
    return finite_or_none(value / whole) if whole else None
