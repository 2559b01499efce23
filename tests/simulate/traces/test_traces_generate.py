from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.generate import generate_trace
from simulate.traces.statistics import offered_load
from simulate.traces.synthetic.profiles import PROFILES
from simulate.traces.synthetic.quantiles import gamma_values, mixture_seconds, stratified
from simulate.traces.synthetic.users import runs_to_shares
from simulate.traces.write import write_trace

profiles = pytest.mark.parametrize("profile", PROFILES)


@profiles
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(profile, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_trace(generate_trace(profile, jobs=2_000, seed=seed), tmp_path / f"{name}.csv.gz")
    a, b, c = ((tmp_path / f"{name}.csv.gz").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@profiles
@pytest.mark.parametrize("load", [0.3, 0.9, 1.5])
@pytest.mark.parametrize("jobs", [200, 20_000])
def test_the_offered_load_is_the_one_asked_for(profile, load, jobs):
    trace = generate_trace(profile, jobs=jobs, seed=4, gpus=512, load=load)
    assert offered_load(trace, 512) == pytest.approx(load, rel=0.05)


@profiles
def test_jobs_are_whole_sorted_and_named_in_order(profile):
    trace = generate_trace(profile, jobs=3_000, seed=0)
    assert trace.job_id.tolist() == [str(number) for number in range(3_000)]
    assert trace.submit_time[0] == 0
    assert (np.diff(trace.submit_time) >= 0).all()
    for column in (trace.submit_time, trace.num_gpus, trace.duration):
        assert (column == np.rint(column)).all()
    assert trace.duration.min() >= 1
    assert trace.duration.max() <= 5.2e6


@pytest.mark.parametrize("gpus", [1, 6, 20])
def test_no_gang_is_larger_than_the_cluster_and_the_cut_ones_are_counted(gpus):
    trace = generate_trace("venus", jobs=5_000, seed=0, gpus=gpus)
    free = generate_trace("venus", jobs=5_000, seed=0)
    assert trace.num_gpus.max() == max(size for size in PROFILES["venus"].sizes if size <= gpus)
    assert f"{(free.num_gpus > gpus).sum():,}" in trace.notes[0]
    assert free.notes == ()


def test_philly_jobs_end_as_published_and_failed_ones_have_attempts():
    trace = generate_trace("philly", jobs=20_000, seed=0)
    shares = {status: np.mean(trace.status == status) for status in set(trace.status.tolist())}
    assert shares == pytest.approx({"completed": 0.71, "failed": 0.16, "cancelled": 0.13}, abs=0.02)
    attempts = trace.columns["attempts"]
    failed = trace.status == "failed"
    assert (attempts[~failed] == 1).all()
    assert set(attempts[failed].tolist()) == {1, 2, 3, 4, 5}
    assert attempts[failed].mean() == pytest.approx(2.66, abs=0.1)
    several = np.flatnonzero(attempts > 1)
    for row in several[:200]:
        parts = [int(part) for part in trace.columns["attempt_durations"][row].split("+")]
        assert len(parts) == attempts[row]
        assert min(parts) >= 1
        assert sum(parts) == trace.duration[row]


def test_vc_shares_are_those_of_the_profile():
    trace = generate_trace("philly", jobs=20_000, seed=0)
    for vc, percent in PROFILES["philly"].vcs.items():
        assert 100 * np.mean(trace.vc == vc) == pytest.approx(percent, abs=2)


def test_users_repeat_themselves():
    """Measured at Venus: 70 % follow within 10 minutes, 81 % keep the size, lengths correlate."""
    trace = generate_trace("venus", jobs=20_000, seed=0)
    line = np.lexsort((np.arange(len(trace)), trace.user.astype(str)))
    same_user = trace.user[line][1:] == trace.user[line][:-1]
    size, seconds, submit = (
        column[line] for column in (trace.num_gpus, trace.duration, trace.submit_time)
    )
    assert np.mean((size[1:] == size[:-1])[same_user]) >= 0.8
    assert np.mean((np.diff(submit) <= 600)[same_user]) >= 0.7
    log_s = np.log(seconds)
    correlation = np.corrcoef(log_s[1:][same_user], log_s[:-1][same_user])[0, 1]
    assert correlation == pytest.approx(0.46, abs=0.05)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"profile": "borg"}, "known: philly, venus"),
        ({"jobs": 1}, "2 jobs or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"gpus": 0}, "1 GPU or more"),
        ({"gpus": 8, "load": 0}, "load must be above 0"),
        ({"gpus": 8, "load": float("nan")}, "load must be above 0"),
        ({"load": 0.5}, "name the cluster too"),
    ],
)
def test_impossible_requests_are_refused(wrong, message):
    with pytest.raises(BadInput, match=message):
        generate_trace(**{"profile": "philly", "jobs": 10, "seed": 0} | wrong)


@pytest.mark.parametrize("jobs", [2, 3, 10])
def test_very_short_traces_work(jobs):
    assert len(generate_trace("philly", jobs=jobs, seed=0, gpus=8, load=0.5)) == jobs


def test_strata_hold_one_number_each_in_the_latent_order():
    rng = np.random.default_rng(0)
    latent = rng.standard_normal(100)
    uniform = stratified(latent, rng)
    assert sorted((uniform * 100).astype(int)) == list(range(100))
    assert np.array_equal(np.argsort(uniform), np.argsort(latent))


@pytest.mark.parametrize("shape", [0.5, 0.95, 3.0])
def test_gamma_values_have_mean_1_and_variance_1_over_shape(shape):
    values = gamma_values((np.arange(100_000) + 0.5) / 100_000, shape)
    assert values.mean() == pytest.approx(1, rel=1e-3)
    assert values.var() == pytest.approx(1 / shape, rel=1e-2)


def test_mixture_quantiles_of_one_lognormal():
    one = PROFILES["philly"].buckets[0].durations[0]
    seconds = mixture_seconds(np.array([0.5, 0.8413447]), (one,))
    assert seconds.tolist() == np.rint(np.exp([one.mu, one.mu + one.sigma])).tolist()


def test_shares_hold_to_within_a_run():
    rng = np.random.default_rng(0)
    run = np.repeat(np.arange(1_000), rng.integers(1, 10, size=1_000))
    value = runs_to_shares(run, np.array([0.7, 0.2, 0.1]), rng)
    counts = np.bincount(value) / len(run)
    assert counts == pytest.approx([0.7, 0.2, 0.1], abs=10 / len(run))
    assert all(len(set(value[run == each].tolist())) == 1 for each in range(20))


@pytest.mark.slow
def test_a_million_jobs_hold_the_load():
    trace = generate_trace("philly", jobs=1_000_000, seed=0, gpus=2_490, load=0.8)
    assert offered_load(trace, 2_490) == pytest.approx(0.8, rel=0.05)
