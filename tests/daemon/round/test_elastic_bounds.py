"""Elastic jobs grow no further than the cluster and the quotas of their tenants."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.sharing.gpu_limits import RowLimits
from dlsched.core.units import UnitTable
from dlsched.core.walk.room_under_limits import RoomUnderLimits
from dlsched.daemon.round.snapshot_builder import take_snapshot


def test_policies_see_elastic_jobs_bounded_by_the_cluster(live: Any) -> None:
    lab = live.LiveLab((4, 4))
    asked: list[dict[str, Any]] = [
        {"max_gpus": 100}, {"max_gpus": 8}, {"max_gpus": 3}, {"adaptive": True},
        {"fixed_batch": True}, {"gpus": 16, "max_gpus": 100}, {},
    ]  # fmt: skip
    for each in asked:
        lab.submit(0.0, **{"gpus": 1, **each})
    seen = take_snapshot(lab.state, "full", 5.0).table.max_gpus
    assert seen.tolist() == [8, 8, 3, 8, 8, 16, -1]  # a gang that does not fit waits as it is
    assert lab.live.jobs["max_gpus"][0] == 100
    lab.add_node("n3", 100)
    seen = take_snapshot(lab.state, "full", 6.0).table.max_gpus
    assert seen.tolist() == [100, 8, 3, 108, 108, 100, -1]


def test_the_rest_of_a_quota_is_divided_evenly() -> None:
    table = UnitTable(4)
    table.gang[:], table.max_gpus[:] = (1, 2, 2, 1), (100, 100, -1, 100)  # the third is not elastic
    table.gpus_now[:] = (3, 0, 2, 1)  # the second waits
    held = {row: Placement((0,), ((1 << gpus) - 1,)) for row, gpus in ((0, 3), (2, 2), (3, 1))}
    for quota, bounds in ((12, {0: 3 + 2, 1: 2 + 2}), (4, {0: 3, 1: 2}), (1000, {0: 100, 1: 100})):
        ann = ("user", "ann")  # of 12 - 7 left, 2 each; the fourth is another's
        table.gpu_limits = RowLimits.of({ann: quota}, [(ann,)], np.array([0, 0, 0, -1]))
        rows, most = RoomUnderLimits(table, held).bounds(np.arange(4))
        assert dict(zip(rows.tolist(), most.tolist(), strict=True)) == bounds
