"""AFS: its rule on examples worked by hand, its properties, and its place in a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.context import Change
from dlsched.core.errors import PolicyFailed
from dlsched.core.round.steps import Parts, decide
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.registry import make
from dlsched.policies.scheduling.afs import Afs, AfsOptions, Sharing, shares

TWO = [[1.0, 1.8, 2.4, 2.8], [1.0, 1.6, 2.0, 2.2]]
LINEAR = [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
THREE = [[1.0, 1.9, 2.7, 3.4], [1.0, 1.2, 1.3, 1.35], [1.0, 1.7, 2.2, 2.6]]


def divided(rates: list[list[float]], work: list[float], gpus: int) -> tuple[dict[str, int], str]:
    sharing = shares(np.array(rates), np.array(work), gpus)
    names = "ABCDEF"
    sizes = {names[k]: size for k, size in enumerate(sharing.sizes.tolist())}
    return sizes, "".join(names[k] for k in sharing.grants)


@pytest.mark.parametrize(
    ("rates", "work", "gpus", "sizes", "grants"),
    [
        (TWO, [10, 20], 4, {"A": 2, "B": 2}, "ABAB"),
        (LINEAR, [10, 20], 4, {"A": 3, "B": 1}, "AABA"),
        (THREE, [8, 9, 30], 6, {"A": 3, "B": 1, "C": 2}, "ABCAAC"),
    ],
)
def test_the_worked_examples(
    rates: list[list[float]], work: list[float], gpus: int, sizes: dict[str, int], grants: str
) -> None:
    assert divided(rates, work, gpus) == (sizes, grants)


def table(rates: list[list[float]]) -> ThroughputTable:
    return ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(f"m{job}"), rate=rate)
            for job, curve in enumerate(rates)
            for k, rate in enumerate(curve, 1)
        ]
    )


def finishes(
    lab: Any, rates: list[list[float]], work: list[float], gpus: int, **settings: Any
) -> list[float]:
    count = len(work)
    trace = lab.trace(
        [(0, 1, w) for w in work],
        model=[f"m{job}" for job in range(count)],
        total_iterations=work,
        min_gpus=[1] * count,
        max_gpus=[len(curve) for curve in rates],
    )
    settings = {"clock": "events", "cluster": f"1x{gpus}:v100"} | settings
    policy = settings.pop("policy", "afs")
    result = lab.run(trace, policy, throughputs=table(rates), **settings)
    ends: list[float] = result.jobs.finish_time.tolist()
    return ends


def test_two_jobs_run_to_their_ends(lab: Any) -> None:
    ends = finishes(lab, TWO, [10, 20], 4)
    assert ends == pytest.approx([10 / 1.8, 10 / 1.8 + (20 - 16 / 1.8) / 2.2], abs=1e-9)
    assert np.mean(ends) == pytest.approx(8.0808, abs=5e-5)


def test_linear_scaling_shows_the_price_of_apathy(lab: Any) -> None:
    assert finishes(lab, LINEAR, [10, 20], 4) == pytest.approx([10 / 3, 7.5])


def test_three_jobs_run_to_their_ends(lab: Any) -> None:
    ends = finishes(lab, THREE, [8, 9, 30], 6)
    assert ends == pytest.approx([2.9630, 7.9938, 12.5641], abs=5e-5)


def test_shares_are_kept_until_a_job_comes_or_goes(lab: Any) -> None:
    ends = finishes(lab, THREE, [8000, 9000, 30000], 6, clock="rounds")
    quiet = finishes(lab, THREE, [8000, 9000, 30000], 6, clock="rounds", skipping=False)
    assert ends == quiet
    assert ends == pytest.approx([2963.0, 7994, 12564], abs=60)


def test_between_rounds_an_arrival_gets_what_is_idle(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 1000), (10, 1, 1000)],
        model=["m0", "m1"],
        total_iterations=[1000, 1000],
        min_gpus=[1, 1],
        max_gpus=[2, 4],
    )
    result = lab.run(trace, "afs", cluster="1x4:v100", throughputs=table(TWO))
    assert result.jobs.first_start_time.tolist() == [0, 10]
    assert result.jobs.finish_time[0] == pytest.approx(1000 / 1.8)


def test_a_rigid_job_has_its_gang_or_nothing(lab: Any) -> None:
    trace = lab.trace([(0, 3, 100), (0, 2, 100), (0, 1, 50)])
    result = lab.run(trace, "afs", cluster="1x4", clock="events")
    assert (
        lab.spans(result) == {"A": (50, 150), "B": (0, 100), "C": (0, 50)}
        or result.summary["completed"] == 3
    )


def test_a_job_that_cannot_be_placed_whole_gets_fewer(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 1), (0, 1, 1)],
        model=["m0", "m0"],
        total_iterations=[300, 30],
        min_gpus=[1, 1],
        max_gpus=[4, 4],
    )
    result = lab.run(
        trace, "afs", cluster="3x2:v100", throughputs=table(LINEAR), placement="consolidated"
    )
    assert result.jobs.first_start_time.tolist() == [0, 0]
    assert result.jobs.finish_time.tolist() == [150, 15]


def test_no_job_grows_beyond_the_knee() -> None:
    assert divided([[1.0, 1.5, 1.4, 1.9]], [10], 4) == ({"A": 2}, "AA")


def test_jobs_of_unknown_length_share_by_attained_service() -> None:
    sharing = shares(np.array(LINEAR), np.array([50.0, 0.0]), 3, known_length=False)
    assert sharing.sizes.tolist() == [1, 2]


def test_the_first_gpu_is_for_the_job_that_ends_first_or_had_least_where_lengths_are_unknown() -> (
    None
):
    rates, one = np.array([[10.0], [1.0]]), np.ones(2, np.int64)
    ahead = np.array([10.0, 5.0])  # work: 1 s and 5 s; or service attained
    assert Sharing(rates, ahead, one, one).grant(1).tolist() == [1, 0]
    assert Sharing(rates, ahead, one, one, known_length=False).grant(1).tolist() == [0, 1]


def test_length_unknown_is_refused_in_one_line(lab: Any) -> None:

    ctx = lab.context("1x4", [1, 1])
    ctx.table.predicted_work[1] = np.nan

    parts = Parts(
        scheduling=Afs(AfsOptions()),
        placement=make("placement", "min-nodes"),
        admission=make("admission", "accept-all"),
        estimator=make("estimator", "history"),
    )
    ctx.changes.append(Change("arrive", 0.0, 0))
    with pytest.raises(PolicyFailed, match="work of 1 of 2 jobs is not known: estimate it"):
        decide(parts, ctx)


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    count = draw(st.integers(1, 7))
    powers = draw(st.lists(st.floats(0.2, 1.0), min_size=count, max_size=count))
    work = draw(st.lists(st.floats(1, 1000), min_size=count, max_size=count))
    most = draw(st.integers(1, 8))
    rates = np.array([[k**power for k in range(1, most + 1)] for power in powers])
    return rates, np.array(work), draw(st.integers(0, 24))


def by_the_book(rates: Any, work: Any, gpus: int) -> list[int]:
    """The rule as it is written, job after job."""
    sizes = [0] * len(work)

    def p(job: int) -> float:
        return 0.0 if not sizes[job] else float(rates[job][sizes[job] - 1])

    def more(job: int) -> float:
        return float(rates[job][sizes[job]])

    def better(x: int, y: int) -> int:
        if not sizes[x] and not sizes[y]:
            return y if work[y] / more(y) < work[x] / more(x) else x
        ends = [work[j] / p(j) if sizes[j] else np.inf for j in (x, y)]
        a, b = (y, x) if ends[1] < ends[0] else (x, y)
        return b if (more(b) - p(b)) / more(b) > (more(a) - p(a)) / p(a) else a

    for _ in range(gpus):
        able = [job for job in range(len(work)) if sizes[job] < len(rates[job])]
        if not able:
            break
        top = able[0]
        for job in able[1:]:
            top = better(top, job)
        sizes[top] += 1
    return sizes


@given(instances())
def test_it_divides_as_the_rule_is_written(
    instance: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int],
) -> None:
    rates, work, gpus = instance
    sizes = shares(rates, work, gpus).sizes
    assert sizes.tolist() == by_the_book(rates, work, gpus)
    assert sizes.sum() == min(gpus, rates.size)
    assert (sizes <= rates.shape[1]).all()


@given(instances())
def test_names_do_not_matter(
    instance: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int],
) -> None:
    rates, work, gpus = instance
    twice, both = np.concatenate([rates, rates]), np.concatenate([work, work])
    sizes = shares(twice, both, gpus).sizes.reshape(2, -1)
    swapped = shares(twice[::-1][::-1], both, gpus).sizes.reshape(2, -1)
    assert (sizes == swapped).all()


@given(instances(), st.integers(1, 4))
def test_a_first_grant_is_the_fewest_at_once(
    instance: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int], least: int
) -> None:
    rates, work, gpus = instance
    fewest = np.full(len(work), min(least, rates.shape[1]))
    sizes = shares(rates, work, gpus, least=fewest).sizes
    assert ((sizes == 0) | (sizes >= fewest)).all()
    assert sizes.sum() <= gpus
