"""The estimator `co-location` in a replay: guesses about pairs, until they have run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, TableSpeed
from dlsched.policies.estimators.pairs import GuessedPairs, PairOptions

ALONE = {("A", "gpu"): 10.0, ("B", "gpu"): 10.0, ("C", "gpu"): 20.0}
# C behaves as A does; B bears no other job
BESIDE = {
    ("A", "A"): (0.8, 0.8), ("A", "B"): (0.5, 0.1), ("A", "C"): (0.8, 0.8), ("B", "B"): (0.1, 0.1),
    ("B", "C"): (0.1, 0.5), ("C", "C"): (0.8, 0.8),
}  # fmt: skip


def table(lab: Any) -> Any:
    pairs = {
        (one, other, "gpu"): (a * ALONE[one, "gpu"], b * ALONE[other, "gpu"])
        for (one, other), (a, b) in BESIDE.items()
    }
    return lab.throughputs(ALONE, pairs, scales=(1, 2))


def speeds(lab: Any, *models: str, **options: Any) -> GuessedPairs:
    truth = TableSpeed(table(lab), [JobKind(model) for model in models])
    return GuessedPairs(truth, PairOptions(**options))


def pair(guessed: GuessedPairs, one: int, other: int) -> list[float]:
    found = guessed.together(np.array([one]), np.array([other]), np.array([1]), ("gpu",))
    return [float(rate) for rate in found[0, 0]]


def test_with_all_references_and_every_trial_the_guess_is_the_truth(lab: Any) -> None:
    guessed = speeds(lab, "A", "B", "C", probability=1.0, references=3)
    assert pair(guessed, 0, 1) == pytest.approx([5, 1])
    assert pair(guessed, 0, 2) == pytest.approx([8, 16])
    assert pair(guessed, 1, 2) == pytest.approx([1, 10])


def test_what_was_measured_replaces_the_guess_and_survives_its_state(lab: Any) -> None:
    guessed = speeds(lab, "A", "B", probability=0.0, references=1)
    ctx: RoundContext = lab.context("1x1", [1, 1])
    pair(guessed, 0, 1)
    assert guessed.ran(0, 1, "gpu", ctx)
    assert not guessed.ran(0, 1, "gpu", ctx), "nothing new"
    assert pair(guessed, 0, 1) == pytest.approx([5, 1])
    assert pair(guessed, 1, 0) == pytest.approx([1, 5])
    other = speeds(lab, "A", "B", probability=0.0, references=1)
    other.load_state_dict(guessed.state_dict())
    assert pair(other, 0, 1) == pytest.approx([5, 1])


def test_what_was_measured_follows_jobs_to_other_rows(lab: Any) -> None:
    guessed = speeds(lab, "A", "B", probability=0.0, references=1)
    ctx: RoundContext = lab.context("1x1", [1, 1])
    pair(guessed, 0, 1)
    guessed.ran(0, 1, "gpu", ctx)
    guessed.rename({0: 1, 1: 0})
    assert guessed.state_dict() == {"measured": [[1, 0, 0, *pair(guessed, 1, 0)]]}
    guessed.rename({0: 0})
    assert guessed.state_dict() == {"measured": []}, "one of the two is gone"


def test_gangs_are_paired_where_pairs_of_as_many_gpus_are_known(lab: Any) -> None:
    guessed = speeds(lab, "A", "C", "B", probability=1.0, references=3)
    rows = np.array([0, 0]), np.array([1, 2])
    found = guessed.together(*rows, np.array([2, 1]), ("gpu",))
    truth = TableSpeed(table(lab), [JobKind(model) for model in "ACB"])
    assert found == pytest.approx(truth.together(*rows, np.array([2, 1]), ("gpu",)))
    only_ones = TableSpeed(
        lab.throughputs(ALONE, {("A", "A", "gpu"): (8.0, 8.0)}, scales=(1,)), [JobKind("A")] * 2
    )
    few = GuessedPairs(only_ones, PairOptions(probability=1.0))
    assert few.together(np.array([0]), np.array([1]), np.array([1]), ("gpu",)).any()
    assert few._references(2) is None


def trace_of(lab: Any, models: str) -> Any:
    jobs = [(0.0, 1, 10_000.0)] * len(models)
    return lab.trace(jobs, total_iterations=[10_000.0] * len(models), model=list(models))


@pytest.mark.parametrize("semantics", ["rounds", "gavel"])
def test_a_wrong_guess_is_found_out(lab: Any, semantics: str) -> None:
    # nothing is tried, so the match is drawn by lot, among one reference only
    runs = {}
    for estimate in ("oracle", "co-location"):
        options = ["objective=max-min-packed", f"semantics={semantics}"]
        if estimate == "co-location":
            options += ["estimate.probability=0", "estimate.references=1"]
        runs[estimate] = lab.run(
            trace_of(lab, "ABBC"),
            "gavel",
            cluster="2x1",
            throughputs=table(lab),
            estimate=estimate,
            options=tuple(options),
            round_s=360.0,
        )
        assert runs[estimate].summary["completed"] == 4
    assert runs["co-location"].summary["makespan"] < 1.6 * runs["oracle"].summary["makespan"]


def test_it_needs_a_table(lab: Any) -> None:
    with pytest.raises(BadInput, match="needs a table of throughputs: --profiles"):
        lab.run([(0, 1, 10)], "gavel", estimate="co-location")
