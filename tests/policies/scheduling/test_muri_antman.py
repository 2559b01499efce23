"""AntMan as Muri's authors simulate it: gangs that are collected, and the least used GPUs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.invariants import check_world
from dlsched.core.units import COMPLETED

GUARANTEED, OPPORTUNISTIC = "guaranteed", "opportunistic"


def run(lab: Any, jobs: list[Any], kinds: str, cluster: str, **more: Any) -> Any:
    """Run jobs whose kinds are letters: g for guaranteed, o for opportunistic."""
    words = [GUARANTEED if kind == "g" else OPPORTUNISTIC for kind in kinds]
    return lab.run(lab.trace(jobs, guarantee=words), "muri-antman", cluster=cluster, **more)


def test_a_waiting_job_keeps_the_gpus_that_it_has_found(lab: Any) -> None:
    # B keeps two GPUs from 10 on, so that C finds none, though B itself waits until 100
    result = run(lab, [(0, 2, 100), (10, 4, 50), (20, 1, 10)], "ggg", "1x4", clock="events")
    assert lab.spans(result) == {"A": (0, 100), "B": (100, 150), "C": (150, 160)}


def test_a_job_collects_on_the_node_that_it_has_begun_with(lab: Any) -> None:
    # C begins on the second node, where two GPUs are free, and stays there when the first is free
    jobs = [(0, 3, 50), (0, 2, 200), (10, 4, 30)]
    result = run(lab, jobs, "ggg", "2x4", clock="events")
    assert lab.spans(result)["C"] == (200, 230)


def test_a_large_gang_collects_whole_nodes(lab: Any) -> None:
    # C keeps the third node at once; D finds one GPU on the second; C has the first at 50
    jobs = [(0, 4, 50), (0, 3, 400), (10, 8, 20), (20, 1, 10)]
    result = run(lab, jobs, "gggg", "3x4", clock="events")
    assert lab.spans(result) == {"A": (0, 50), "B": (0, 400), "C": (50, 70), "D": (20, 30)}


def test_a_gang_of_whole_nodes_and_a_part_collects_both(lab: Any) -> None:
    # D has the first node at 50, three GPUs of the second at 60 and the fourth at 70
    jobs = [(0, 4, 50), (0, 3, 60), (0, 1, 70), (10, 8, 20)]
    assert lab.spans(run(lab, jobs, "gggg", "2x4", clock="events"))["D"] == (70, 90)
    jobs = [(0, 4, 50), (0, 3, 60), (0, 1, 70), (10, 7, 20)]
    assert lab.spans(run(lab, jobs, "gggg", "2x4", clock="events"))["D"] == (60, 80)


def test_an_opportunistic_job_takes_gpus_of_several_nodes_or_none(lab: Any) -> None:
    result = run(lab, [(0, 3, 100), (10, 6, 20), (15, 3, 20)], "goo", "2x4", clock="events")
    assert lab.spans(result)["B"] == (10, 30)
    assert lab.spans(result)["C"] == (30, 50)  # two GPUs have no opportunistic job: too few


def test_free_gpus_are_used_before_kept_ones_and_kept_before_busy_ones(lab: Any) -> None:
    # A runs on GPUs 0 and 1 of the node, B keeps the other two, and the next node is free
    jobs = [(0, 2, 1000), (0, 4, 1000), (0, 3, 1000), (10, 1, 90), (20, 2, 90), (30, 1, 90)]
    trace = lab.trace(jobs, guarantee=[GUARANTEED] * 3 + [OPPORTUNISTIC] * 3)
    engine = lab.engine(trace, "muri-antman", cluster="1x4+1x4", clock="events")
    seen: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def look(engine: Any, allocation: Any) -> None:
        seen.update({row: tuple(where) for row, where in engine.world.occupancy.held.items()})

    engine.observers.append(look)
    engine.run()
    assert seen[0] == ((0,), (0b0011,))
    assert seen[1] == ((1,), (0b1111,))
    assert seen[3] == ((0,), (0b0100,))  # kept by C, as is the one of E
    assert seen[4] == ((0,), (0b1001,))
    assert seen[5] == ((0,), (0b0010,))


situations = st.fixed_dictionaries(
    {
        "jobs": st.lists(
            st.tuples(
                st.integers(0, 300), st.sampled_from([1, 1, 2, 3, 5, 7]), st.integers(1, 400)
            ),
            min_size=1,
            max_size=12,
        ),
        "kinds": st.lists(st.sampled_from("ggo"), min_size=12, max_size=12),
        "cluster": st.sampled_from(["1x8", "2x2+1x4", "3x4", "4x2"]),
        "clock": st.sampled_from(["rounds", "events"]),
    }
)


@given(situations)
def test_any_jobs_are_run_to_their_end(lab: Any, case: dict[str, Any]) -> None:
    """Even where each of some jobs keeps what the others need."""
    kinds = [GUARANTEED if kind == "g" else OPPORTUNISTIC for kind in case["kinds"]]
    trace = lab.trace(case["jobs"], guarantee=kinds[: len(case["jobs"])])
    engine = lab.engine(trace, "muri-antman", cluster=case["cluster"], clock=case["clock"])

    def look(engine: Any, allocation: Any) -> None:
        check_world(engine.world.table, engine.world.occupancy, engine.now)

    engine.observers.append(look)
    engine.run()
    assert (engine.world.table.status == COMPLETED).all()
    assert not engine.world.occupancy.reserved
