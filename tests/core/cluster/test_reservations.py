"""Reservations in core: which nodes are left to which rows, and that a replay keeps to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.pools import Pools
from dlsched.core.cluster.reservations import NOWHERE, Reservation, Reserved
from simulate.forecast import forecaster

CLUSTER = Cluster([Node(name=f"n{k + 1}", gpus=4) for k in range(3)])
MEETING = Reservation(name="meeting", nodes=("n1", "n2"), start=100.0, end=200.0)
REPAIR = Reservation(name="repair", nodes=("n3",), start=50.0, end=math.inf, maintenance=True)


def left(now: float, limit: float, own: int = -1, held: int = 0, *kept: Reservation) -> int:
    pools = Pools(CLUSTER)
    reserved = Reserved(kept or (MEETING,), pools)
    [pool] = reserved.pools_at(
        now, np.array([0]), np.array([limit]), np.array([own]), [held]
    ).tolist()
    return pools.nodes[pool]


@pytest.mark.parametrize(
    ("now", "limit", "nodes"),
    [
        (0.0, 100.0, 0b111),  # it ends as the reservation begins
        (0.0, 100.5, 0b100),
        (0.0, math.nan, 0b100),  # without a limit a job counts as endless
        (150.0, 1.0, 0b100),
        (199.9, 1.0, 0b100),
        (200.0, math.nan, 0b111),
    ],
)
def test_a_row_keeps_off_nodes_into_whose_reservation_its_limit_reaches(
    now: float, limit: float, nodes: int
) -> None:
    assert left(now, limit) == nodes


@pytest.mark.parametrize(
    ("now", "limit", "nodes"),
    [(99.0, 10.0, 0), (100.0, 100.0, 0b011), (100.0, 101.0, 0), (150.0, 60.0, 0), (200.0, 1.0, 0)],
)
def test_a_row_of_the_reservation_runs_on_its_nodes_and_within_its_time(
    now: float, limit: float, nodes: int
) -> None:
    assert left(now, limit, 0) == nodes


def test_rows_keep_what_they_have_and_those_of_lost_reservations_get_nothing() -> None:
    assert left(150.0, math.nan, -1, 0b001) == 0b101
    assert left(150.0, 1.0, NOWHERE) == 0
    assert left(60.0, 1.0, -1, 0, MEETING, REPAIR) == 0b011
    assert left(60.0, 1.0, 1, 0, MEETING, REPAIR) == 0  # maintenance is for no job


def test_reasons_are_slurms_words() -> None:
    pools = Pools(CLUSTER)
    reserved = Reserved((MEETING, REPAIR), pools)
    assert reserved.why(0.0, 10.0, 0, 0) == ("Reservation", "meeting begins in 2 min")
    assert reserved.why(150.0, 90.0, 0, 0) == ("Reservation", "meeting ends before the job would")
    assert reserved.why(0.0, 10.0, NOWHERE, 0) == (
        "Reservation", "the one that the job names is over"
    )  # fmt: skip
    assert reserved.why(0.0, 10.0, -1, 0) is None
    word, text = reserved.why(0.0, 120.0, -1, 0) or ("", "")
    assert (word, text) == (
        "ReqNodeNotAvail",
        "n1, n2: reserved (meeting) in 2 min, into which the job's time limit reaches",
    )
    assert reserved.next_moment(0.0) == 50.0
    assert reserved.next_moment(100.0) == 200.0
    assert reserved.next_moment(200.0) == math.inf


def test_a_forecast_from_the_middle_of_a_run_keeps_to_them(lab: Any) -> None:
    """The one row that may not start before 400 does so in the forecast, too."""
    trace = lab.trace([(0, 4, 50), (10, 12, 100)], time_limit=[50.0, 100.0])
    engine = lab.engine(trace, "fifo", cluster=CLUSTER, clock="events", horizon=160.0)
    kept = Reservation(name="kept", nodes=("n1",), start=120.0, end=400.0)
    engine.cycle.ctx.reserved = Reserved((kept,), engine.pools)
    engine.between_rounds = None
    engine._await_reservations()
    engine.run()
    found = forecaster(engine)()
    assert found.first_start.tolist() == [400.0]


starts = st.tuples(st.integers(0, 400), st.integers(1, 4), st.integers(1, 150), st.booleans())


@pytest.mark.parametrize("policy", ["fifo", "first-fit", "easy", "srtf", "multifactor"])
@given(jobs=st.lists(starts, min_size=1, max_size=10))
def test_no_job_of_a_run_is_on_reserved_nodes_in_their_time(
    lab: Any, policy: str, jobs: list[tuple[int, int, int, bool]]
) -> None:
    """Each has its duration as its limit, or, marked, names the reservation."""
    rows = [(float(submit), gpus, float(took)) for submit, gpus, took, _ in sorted(jobs)]
    inside = [named for *_, named in sorted(jobs)]
    trace = lab.trace(rows, time_limit=[took for *_, took in rows])
    engine = lab.engine(trace, policy, cluster=CLUSTER, clock="events")
    ctx = engine.cycle.ctx
    kept = Reservation(name="kept", nodes=("n1", "n2"), start=150.0, end=400.0)
    ctx.reserved = Reserved((kept,), ctx.pools)
    ctx.table.reservation[:] = np.where(inside, 0, -1)
    engine.between_rounds = None
    engine._await_reservations()
    where: dict[int, list[tuple[float, tuple[int, ...]]]] = {}

    def note(_engine: Any, allocation: Any) -> None:
        for row, placement in allocation.launched.items():
            where.setdefault(row, []).append((engine.now, placement.nodes))

    engine.observers.append(note)
    engine.run()
    for row, starts_ in where.items():
        for begin, nodes in starts_:
            end = begin + ctx.table.time_limit[row]
            if inside[row]:
                assert set(nodes) <= {0, 1}
                assert begin >= 150.0
                assert end <= 400.0
            elif {0, 1} & set(nodes):
                assert end <= 150.0 or begin >= 400.0
    outside = [row for row, named in enumerate(inside) if not named]
    assert all(row in where for row in outside)  # all of them run, at last
