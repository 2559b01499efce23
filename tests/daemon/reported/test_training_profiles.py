"""Reports of elastic jobs: valid ones make a profile, invalid ones are ignored and counted."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.core.goodput.params import PerfParams
from dlsched.core.goodput.throughput import accumulation_time, optimiser_time
from dlsched.core.units import UnitTable
from dlsched.daemon.reported.training_profiles import Place, TrainingProfile, TrainingProfiles
from dlsched.daemon.round.believed_goodput import BelievedGoodput
from dlsched.db.trainings import TrainingRow
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1.control_pb2 import TrainingReport

TRUE = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
JOB = JobId(1)


def report(nodes: int = 1, replicas: int = 1, *local: int, **given: Any) -> TrainingReport:
    """What a job with those parameters tells honestly."""
    sizes = np.array(local or (128,))
    values: dict[str, Any] = {
        "nodes": nodes,
        "replicas": replicas,
        "local": sizes.tolist(),
        "steps": [10] * len(sizes),
        "accumulation_s": np.asarray(accumulation_time(TRUE, sizes)).tolist(),
        "optimiser_s": np.asarray(optimiser_time(TRUE, nodes, replicas, sizes)).tolist(),
        "gradient_sqr": 0.5,
        "gradient_var": 4.0,
        "initial": 128,
        "maximum": 4096,
        "local_min": 32,
        "local_max": 256,
        "may_accumulate": True,
        "local_now": int(sizes[0]),
        "progress": 10.0,
    }
    return TrainingReport(**{**values, **given})


def told(*reports: TrainingReport, book: TrainingProfiles | None = None) -> TrainingProfile:
    book = book or TrainingProfiles()
    for run, each in enumerate(reports, 1):
        place = Place("v100", each.nodes, each.replicas)
        assert book.take(JOB, run, place, each) == ""
    return book.of(JOB)


WELL_KNOWN = (
    report(1, 1, 64, 128, 256), report(1, 2, 64, 128), report(1, 4, 64, 128),
    report(2, 8, 64, 256), report(4, 16, 128),
)  # fmt: skip


def test_the_fitted_model_predicts_the_measured_times() -> None:
    training = told(*WELL_KNOWN)
    found, sizes = training.models["v100"], np.array([64, 128, 256])
    assert accumulation_time(found, sizes) == pytest.approx(
        accumulation_time(TRUE, sizes), rel=0.02
    )
    for nodes, replicas in ((1, 1), (1, 4), (2, 8), (4, 16)):
        assert optimiser_time(found, nodes, replicas, sizes) == pytest.approx(
            optimiser_time(TRUE, nodes, replicas, sizes), rel=0.15
        )
    assert training.largest("v100") == 16
    assert training.largest("k80") == 0
    assert training.one_gpu_step("v100") == pytest.approx(0.178 / 64)
    assert math.isnan(training.one_gpu_step("k80"))


def test_the_batch_size_with_the_best_predicted_goodput_is_chosen() -> None:
    training = told(*WELL_KNOWN)
    training.models["v100"] = TRUE
    found = [
        training.expected(Place("v100", nodes, gpus))
        for nodes, gpus in ((1, 2), (1, 4), (2, 8), (16, 64))
    ]
    assert [(e.local, e.accumulation) for e in found if e] == [(121, 0), (87, 0), (106, 0), (64, 0)]
    assert [e.goodput for e in found if e] == pytest.approx(
        [745.259, 1271.16, 1535.59, 1184.8], rel=1e-5
    )
    assert training.expected(Place("k80", 1, 1)) is None


def test_a_batch_size_changes_only_for_a_gain_of_five_percent() -> None:
    training = told(*WELL_KNOWN[:3])
    training.models["v100"] = TRUE
    four = Place("v100", 1, 4)
    training.local = 40  # goodput 1139, of 1271 at best
    assert training.better_batch(four) == (87, 0)
    training.local = 80
    assert training.better_batch(four) is None
    training.local = 87
    assert training.better_batch(four) is None
    assert training.better_batch(Place("v100", 2, 8)) == (106, 0)  # a new run begins with the best


def test_a_new_run_gets_its_batch_size_even_if_it_did_not_change() -> None:
    training = told(*WELL_KNOWN[:3])
    training.models["v100"] = TRUE
    training.local = 106
    assert training.better_batch(Place("v100", 2, 8)) == (106, 0)


def test_a_report_without_measurements_is_valid() -> None:
    nothing: dict[str, Any] = {name: [] for name in TWICE}
    training = told(report(**nothing))
    assert (training.models, training.observations, training.progress) == ({}, 0, 10.0)


def test_progress_never_goes_back() -> None:
    training = told(report(progress=10.0), report(progress=4.0), report(progress=12.0))
    assert training.progress == 12.0
    assert told(report(progress=10.0), report(progress=4.0)).progress == 10.0


def test_only_a_bounded_number_of_batch_sizes_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlsched.daemon.reported.training_profiles.MOST_KEYS", 4)
    training = told(report(1, 1, 32, 64, 128), report(1, 1, 256, 200, 100), report(1, 1, 64))
    assert training.observations == 4
    assert {key.local for key, _ in training._times()} == {32, 64, 128, 256}
    (steps,) = [times.steps for key, times in training._times() if key.local == 64]
    assert steps == 20  # what is known goes on being measured


def test_a_fixed_batch_or_unknown_noise_keeps_the_initial_batch_size() -> None:
    fixed = told(report(1, 4, 32, fixed=True, maximum=128))
    assert fixed.better_batch(Place("v100", 1, 2)) is None
    unknown = report(1, 4, 32)
    unknown.ClearField("gradient_sqr")
    training = told(unknown)
    assert training.better_batch(Place("v100", 1, 8)) is None
    assert training.believed_limits is not None
    assert training.believed_limits.maximum == 128
    best = training.expected(Place("v100", 1, 2))
    assert best is not None
    assert (best.local, best.accumulation) == (64, 0)


NAN, INF = math.nan, math.inf
TWICE: dict[str, Any] = {
    "local": [32, 64], "steps": [1, 1], "accumulation_s": [0.1, 0.1], "optimiser_s": [0.2, 0.2],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"nodes": 0}, "1 replica on 0 nodes"),
        ({"replicas": -3}, "-3 replicas on 1 node"),
        ({"replicas": 2}, "2 replicas on 1 node"),
        ({"nodes": 2, "replicas": 2}, "replicas"),
        ({"initial": 0}, "batch sizes"),
        ({"maximum": 64}, "batch sizes"),
        ({"local_min": 300}, "batch sizes"),
        ({"local_max": 1 << 62}, "batch sizes"),
        ({"local_min": 100, "local_max": 200, "initial": 8, "maximum": 9}, "smallest local"),
        ({"local_now": -1}, "batch sizes"),
        ({"accumulation_now": -1}, "accumulation"),
        ({"progress": NAN}, "progress"),
        ({"progress": -1.0}, "progress"),
        ({"progress": 1e300}, "progress"),
        ({"gradient_sqr": NAN}, "gradient noise"),
        ({"gradient_var": INF}, "gradient noise"),
        ({"gradient_var": -1.0}, "gradient noise"),
        ({"local": [128, 64]}, "columns"),
        ({"local": []}, "columns"),
        ({**TWICE, "local": [64, 64]}, "columns"),
        ({name: values * 150 for name, values in TWICE.items()}, "columns"),
        ({"local": [-128]}, "local batch sizes"),
        ({"steps": [0]}, "steps"),
        ({"steps": [1 << 62]}, "steps"),
        ({"accumulation_s": [NAN]}, "times"),
        ({"accumulation_s": [-1.0]}, "times"),
        ({"optimiser_s": [INF]}, "times"),
        ({"optimiser_s": [0.1]}, "times"),
        ({"optimiser_s": [1e9]}, "times"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_invalid_reports_are_ignored_and_counted(wrong: dict[str, Any], complaint: str) -> None:
    book = TrainingProfiles()
    told(report(), book=book)
    before = book.of(JOB).known()
    assert complaint in book.take(JOB, 1, Place("v100", 1, 1), report(**wrong))
    assert (book.ignored, book.of(JOB).ignored) == (1, 1)
    assert book.of(JOB).known() == {**before, "ignored": 1}


@pytest.mark.parametrize("seconds", [NAN, INF, -1.0, 1e9])
def test_invalid_restart_times_are_ignored(seconds: float) -> None:
    book = TrainingProfiles()
    book.restarted(JOB, seconds)
    book.saved(JOB, seconds)
    assert (book.ignored, book.of(JOB).restarts, book.of(JOB).saves) == (2, 0, 0)


def test_the_cost_of_a_restart_is_the_mean_of_the_measured_ones() -> None:
    training = told(report())
    assert math.isnan(training.stop_and_start_s)
    training.restarted(3.0)
    training.restarted(5.0)
    training.saved(0.5)
    assert training.stop_and_start_s == pytest.approx(4.5)


def test_reports_of_one_run_replace_each_other_and_runs_are_averaged() -> None:
    book = TrainingProfiles()
    here = Place("v100", 1, 1)

    def tell(run: int, steps: int, seconds: float) -> None:
        times: dict[str, Any] = {
            "steps": [steps],
            "accumulation_s": [seconds],
            "optimiser_s": [seconds],
        }
        assert book.take(JOB, run, here, report(**times)) == ""

    def means() -> list[float]:
        ((_, times),) = book.of(JOB)._times()
        assert times.accumulation_s == times.optimiser_s
        return [times.steps, times.accumulation_s]

    tell(1, 5, 1.0)
    tell(1, 10, 2.0)
    tell(2, 10, 4.0)
    tell(2, 30, 4.0)
    assert means() == [40, 3.5]
    book.load([TrainingRow(job=JOB, known=book.of(JOB).known(), at=1.0)])
    tell(2, 40, 4.0)  # the same run goes on under another daemon: its steps count once
    assert means() == [50, 3.6]


def test_a_stored_profile_predicts_the_same() -> None:
    book = TrainingProfiles()
    training = told(*WELL_KNOWN, book=book)
    training.restarted(2.0)
    known = json.loads(json.dumps(training.known(), allow_nan=False))
    other = TrainingProfiles()
    other.load([TrainingRow(job=JOB, known=known, at=1.0)])
    again = other.of(JOB)
    assert again.known() == training.known()
    for place in (Place("v100", 1, 1), Place("v100", 1, 4), Place("v100", 2, 8)):
        mine, theirs = training.expected(place), again.expected(place)
        assert mine is not None
        assert theirs is not None
        assert theirs.goodput == pytest.approx(mine.goodput, rel=0.05)  # fitted from another start
    with pytest.raises(BadInput, match="cannot be read: 'times'"):
        TrainingProfile.of_known({key: value for key, value in known.items() if key != "times"})


def test_policies_see_reported_values_and_defaults_for_missing_ones() -> None:
    book = TrainingProfiles()
    told(*WELL_KNOWN, book=book).restarted(4.0)
    table = UnitTable(3)
    table.gang[:] = (2, 4, 1)
    table.max_gpus[:] = (8, 16, -1)
    table.extra["batch_size"] = np.array([256.0, np.nan, np.nan])
    rows = np.arange(3)
    nothing = BelievedGoodput({}, table, 30.0)
    assert np.isnan(nothing.perf(rows)).all()
    assert np.asarray(nothing.limits(rows).initial).tolist() == [256, 16, 1]
    assert nothing.restart_s(rows).tolist() == [30.0] * 3
    assert nothing.version(rows).tolist() == [0] * 3
    book.of(JobId(9)).saved(1.0)  # has told nothing of its training
    belief = BelievedGoodput(book.columns({1: 1, 9: 2}), table, 30.0)
    assert np.isnan(belief.perf(rows)).any(axis=1).tolist() == [True, False, True]
    assert (belief.perf(rows) == belief.perf(rows, "v100"))[1].all()
    assert np.isnan(belief.perf(rows, "k80")).all()
    assert belief.grads(rows).tolist() == [[0, 1], [0.5, 4], [0, 1]]
    limits = belief.limits(rows)
    assert np.asarray(limits.initial).tolist() == [256, 128, 1]
    assert np.asarray(limits.maximum).tolist() == [256, 4096, 1]
    assert np.asarray(limits.fixed).tolist() == [True, False, True]
    assert belief.profiled(rows).tolist() == [0, 16, 0]
    assert belief.one_gpu_step(rows)[1] == pytest.approx(0.178 / 64)
    assert belief.restart_s(rows).tolist() == [4.0] * 3
    assert belief.replica_gpus(rows).tolist() == [1] * 3
    assert belief.version(rows).tolist() == [0, 6, 0]
