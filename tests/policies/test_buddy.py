"""Buddy placement: blocks of powers of two, without gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.options import NoOptions
from dlsched.core.units import UnitTable
from dlsched.policies.placement.buddy import Buddy

TABLE = UnitTable(64)


def placed(occupancy: Occupancy, row: int, gang: int) -> Placement:
    free = FreeGpus(occupancy, occupancy.open_nodes)
    found = Buddy(NoOptions()).place(GpuRequest(row, gang, TABLE), free)
    assert isinstance(found, Placement)
    occupancy.take(row, found)
    return found


def test_a_gang_takes_a_block_of_its_size_before_a_larger_one_or_an_idle_node() -> None:
    occupancy = Occupancy(parse_cluster_spec("3x8"), 0b111)
    assert placed(occupancy, 0, 4).nodes == (0,)  # leaves a block of 4
    assert placed(occupancy, 1, 2).nodes == (0,)  # leaves a block of 2
    assert placed(occupancy, 2, 4).nodes == (1,)  # no block of 4 is left
    assert placed(occupancy, 3, 2).nodes == (0,)
    assert placed(occupancy, 4, 8).nodes == (2,)


@given(st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=40))
def test_powers_of_two_placed_largest_first_leave_no_gap_and_are_never_spread(
    gangs: list[int],
) -> None:
    occupancy = Occupancy(parse_cluster_spec("4x8"), 0b1111)
    gangs = sorted(gangs, reverse=True)
    fitting = np.cumsum(gangs) <= 32
    for row, gang in enumerate(gangs[: int(fitting.sum())]):
        assert len(placed(occupancy, row, gang).nodes) == max(gang // 8, 1)
