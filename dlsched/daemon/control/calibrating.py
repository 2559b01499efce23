"""How well starts were foretold: what was said first, beside what came."""

from __future__ import annotations

from functools import partial
from statistics import fmean, median, quantiles

from dlsched.daemon.cluster import Cluster
from dlsched.db.told import Came
from dlsched.rpc.v1 import control_pb2

__all__ = ["calibration"]


async def calibration(
    cluster: Cluster, request: control_pb2.CalibrationRequest
) -> control_pb2.CalibrationReply:
    """Errors of first predictions, by what they rested on; of jobs that have started since."""
    shell = cluster.shell
    since = request.since if request.HasField("since") else 0.0
    by_basis: dict[str, list[Came]] = {}
    for each in await shell.read(partial(shell.store.came_true, since)):
        by_basis.setdefault(each.told.basis, []).append(each)
    return control_pb2.CalibrationReply(
        by_basis=[_view(basis, some) for basis, some in sorted(by_basis.items())]
    )


def _view(basis: str, some: list[Came]) -> control_pb2.CalibrationView:
    errors = [each.started_at - each.told.start_at for each in some]
    sizes = [abs(error) for error in errors]
    return control_pb2.CalibrationView(
        basis=basis,
        jobs=len(some),
        mean_error_s=fmean(errors),
        median_abs_error_s=median(sizes),
        p90_abs_error_s=quantiles(sizes, n=10, method="inclusive")[-1]
        if len(sizes) > 1
        else sizes[0],
        mean_lead_s=fmean(each.told.start_at - each.told.made_at for each in some),
    )
