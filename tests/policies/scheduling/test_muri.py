"""The policy muri: what is grouped, kept, placed and remembered, in small replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.invariants import check_world

# one that reads and one that computes take 100 ms together, × 1.33 / 1.015 for sharing; each
# takes 3/4 of that alone, so that it runs at 3/4 of its speed beside the other
ALONE_MS = 0.75 * 100 * 1.33 / 1.015**2
READS, COMPUTES = (90.0, 5.0, 5.0, ALONE_MS), (5.0, 90.0, 5.0, ALONE_MS)
ALIKE = (5.0, 90.0, 5.0, 80.0)
STAGES = ("data_ms", "gpu_ms", "network_ms", "iteration_ms")
FREE = "factors=1,1,1,1"


def run(lab: Any, jobs: list[Any], stages: list[Any], *options: str, **more: Any) -> Any:
    columns = {name: [each[k] for each in stages] for k, name in enumerate(STAGES)}
    return lab.run(
        lab.trace(jobs, **columns),
        "muri",
        cluster=more.pop("cluster", "1x1"),
        options=options,
        **more,
    )


def test_two_that_take_turns_share_the_gpu_and_two_alike_do_not(lab: Any) -> None:
    jobs = [(0, 1, 300), (0, 1, 300)]
    done = run(lab, jobs, [READS, COMPUTES], FREE)
    assert done.jobs.first_start_time.tolist() == [0, 0]
    assert done.jobs.finish_time.tolist() == pytest.approx([400, 400])
    assert lab.spans(run(lab, jobs, [ALIKE] * 2, FREE)) == {"A": (0, 300), "B": (300, 600)}


def test_while_gpus_are_left_no_job_shares_one(lab: Any) -> None:
    done = run(lab, [(0, 1, 300), (0, 1, 300)], [READS, COMPUTES], FREE, cluster="1x2")
    assert done.jobs.finish_time.tolist() == [300, 300]


def test_a_job_whose_partner_leaves_stays_where_it_is(lab: Any) -> None:
    done = run(
        lab, [(0, 1, 300), (0, 1, 600)], [READS, COMPUTES], FREE, cluster="1x1", overhead=5.0
    )
    # at 405 A is done, and B has done as much; it goes on alone
    assert done.jobs.finish_time.tolist() == pytest.approx([405, 705])
    assert done.jobs.starts.tolist() == [1, 1]
    assert done.jobs.migrations.tolist() == [0, 0]


def test_jobs_that_go_on_together_are_not_restarted_in_each_round(lab: Any) -> None:
    jobs = [(0, 1, 600), (0, 1, 600)]
    done = run(lab, jobs, [READS, COMPUTES], FREE, clock="rounds", overhead=5.0)
    assert done.jobs.starts.tolist() == [1, 1]
    assert done.jobs.finish_time.tolist() == pytest.approx([805, 805])


def test_larger_factors_of_sharing_keep_jobs_apart(lab: Any) -> None:
    jobs = [(0, 1, 300), (0, 1, 300)]
    apart = run(lab, jobs, [READS, COMPUTES], "factors=1,2.2")
    assert apart.jobs.finish_time.tolist() == [300, 600]


def test_most_bounds_the_jobs_of_a_group(lab: Any) -> None:
    jobs = [(0, 1, 300)] * 4
    stages = [(90, 5, 5, 400), (5, 90, 5, 400)] * 2
    four = run(lab, jobs, stages, FREE)
    assert four.jobs.first_start_time.tolist() == [0] * 4
    two = run(lab, jobs, stages, FREE, "most=2")
    assert sorted(two.jobs.first_start_time.tolist())[:2] == [0, 0]
    assert sorted(two.jobs.first_start_time.tolist())[2] > 0


def test_without_durations_the_least_served_is_first(lab: Any) -> None:
    jobs = [(0, 1, 1000), (100, 1, 1000)]
    short_first = run(lab, jobs, [ALIKE] * 2, FREE)
    assert lab.spans(short_first)["A"] == (0, 1000)
    fair = run(lab, jobs, [ALIKE] * 2, FREE, "durations=unknown")
    assert lab.spans(fair)["B"][0] == 100


def test_jobs_without_stages_have_gpus_of_their_own(lab: Any) -> None:
    done = lab.run([(0, 1, 100), (0, 1, 50)], "muri", cluster="1x1")
    assert lab.spans(done) == {"A": (50, 150), "B": (0, 50)}


def test_a_part_of_a_gpu_bounds_the_group(lab: Any) -> None:
    columns = {name: [READS[k], COMPUTES[k]] for k, name in enumerate(STAGES)}
    trace = lab.trace([(0, 1, 300), (0, 1, 300)], gpu_share=[0.6, 0.6], **columns)
    done = lab.run(trace, "muri", options=(FREE,), cluster="1x1")
    assert done.jobs.finish_time.tolist() == [300, 600]


situations = st.fixed_dictionaries(
    {
        "jobs": st.lists(
            st.tuples(st.integers(0, 300), st.sampled_from([1, 1, 2, 4]), st.integers(1, 400)),
            min_size=1,
            max_size=14,
        ),
        "cluster": st.sampled_from(["1x4", "2x2+1x4", "3x4"]),
        "clock": st.sampled_from(["rounds", "events"]),
        "rebuild": st.sampled_from(["sticky", "full"]),
        "grouping": st.sampled_from(["blossom", "consecutive"]),
        "overhead": st.sampled_from([0.0, 7.0]),
        "seed": st.integers(0, 5),
    }
)


@given(situations)
def test_any_jobs_are_run_to_their_end_in_groups_of_four_at_most(
    lab: Any, case: dict[str, Any]
) -> None:
    rng = np.random.default_rng(case["seed"])
    jobs = case["jobs"]
    stages = rng.integers(1, 100, (len(jobs), 3)).astype(float)
    stages = np.column_stack([stages, stages.sum(axis=1)])
    columns = {name: stages[:, k].tolist() for k, name in enumerate(STAGES)}
    engine = lab.engine(
        lab.trace(jobs, **columns),
        "muri",
        cluster=case["cluster"],
        options=(f"rebuild={case['rebuild']}", f"grouping={case['grouping']}"),
        clock=case["clock"],
        overhead=case["overhead"],
        check=False,  # of work that is seconds
    )
    together: list[int] = []

    def look(engine: Any, allocation: Any) -> None:
        check_world(engine.world.table, engine.world.occupancy, engine.now)
        beside, gang = engine.world.occupancy.beside, engine.world.table.gang
        for row, others in beside.items():
            together.append(1 + len(others))
            assert {int(gang[other]) for other in others} == {int(gang[row])}

    engine.observers.append(look)
    engine.run()
    assert (engine.world.table.finish > 0).all()
    assert max(together, default=1) <= 4


def test_an_unknown_word_for_the_grouping_is_refused(lab: Any) -> None:
    with pytest.raises(Exception, match="grouping"):
        lab.run([(0, 1, 100)], "muri", options=("grouping=random",))


def test_a_word_in_a_column_of_stages_leaves_the_other_jobs_as_they_are(lab: Any) -> None:
    stages = [READS, COMPUTES, ALIKE]
    columns: dict[str, list[Any]] = {
        name: [str(each[k]) for each in stages] for k, name in enumerate(STAGES)
    }
    columns["gpu_ms"][2] = "many"
    trace = lab.trace([(0, 1, 300)] * 3, **columns)
    engine = lab.engine(trace, "muri", cluster="1x1", options=(FREE,), interference="none")
    engine.run()
    assert engine.world.table.first_start.tolist() == [0, 0, 300]
