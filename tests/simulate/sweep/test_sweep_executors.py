"""The same sweep wherever it is done: the same bytes, and no run lost with another."""

from __future__ import annotations

import io
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from dlsched.policies.blas import THREADS
from simulate.results.output import write_jobs
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, Inputs, conduct, executor_of, expand
from simulate.sweep.executor import InProcess
from simulate.sweep.processes import Processes
from tests.dask_cluster import dask_cluster


@pytest.fixture(scope="module")
def inputs(lab):
    rng = np.random.default_rng(7)
    jobs = [
        (float(at), float(gang), float(length))
        for at, gang, length in zip(
            np.cumsum(rng.exponential(20.0, 60)),
            rng.choice([1, 2, 4], 60),
            rng.exponential(200.0, 60),
            strict=True,
        )
    ]
    return Inputs(traces=(lab.trace(jobs),), cluster=parse_cluster_spec("3x4"))


RUNS = expand(
    Dimensions(
        policy=("fifo", "srtf", "testing-raising"), placement=("random",), load=(1.0, 1.5),
        estimate=("noise:0.5",), seed=(1, 2),
    ),
    RunSettings(mtbf_s=2000.0, mttr_s=100.0),
)  # fmt: skip


def bytes_of(outcome):
    raw = io.BytesIO()
    write_jobs(outcome.finished, raw, tagged=("policy", "load", "seed"))
    return raw.getvalue()


@pytest.fixture(scope="module")
def expected(inputs):
    return conduct(inputs, RUNS, lambda missing: InProcess())


def test_a_failing_policy_does_not_take_the_other_runs_with_it(expected):
    assert [result.policy for result in expected.finished] == ["fifo"] * 4 + ["srtf"] * 4
    assert [run.settings.policy for run, _ in expected.failed] == ["testing-raising"] * 4
    assert all(failed.exit_code == 1 for _, failed in expected.failed)
    assert len({bytes(result.jobs.finish_time) for result in expected.finished}) == 8


def test_processes_give_the_same_bytes(inputs, expected):
    outcome = conduct(inputs, RUNS, lambda missing: Processes(2))
    assert bytes_of(outcome) == bytes_of(expected)
    assert [run.number for run, _ in outcome.failed] == [run.number for run, _ in expected.failed]


def test_processes_tell_how_far_each_run_is(inputs, expected):
    told: dict[int, list[int]] = {}
    conduct(
        inputs, RUNS, lambda missing: Processes(2),
        on_progress=lambda run, ended: told.setdefault(run.number, []).append(ended),
    )  # fmt: skip
    assert all(counts == sorted(set(counts)) for counts in told.values())
    jobs = {run.number: len(inputs.traces[run.trace]) for run in RUNS}
    failed = {run.number for run, _ in expected.failed}
    assert {number: counts[-1] for number, counts in told.items() if number not in failed} == {
        number: count for number, count in jobs.items() if number not in failed
    }


def test_a_worker_computes_with_one_thread(inputs, monkeypatch):
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    found = []

    def look(finished):
        workers = multiprocessing.active_children()
        found.extend(Path(f"/proc/{each.pid}/environ").read_bytes() for each in workers)

    conduct(inputs, RUNS[:4], lambda missing: Processes(2), on_finished=look)
    assert found
    for environment in found:
        assert {f"{name}=1".encode() for name in THREADS} <= set(environment.split(b"\0"))


def test_all_runs_that_a_killed_worker_leaves_fail_in_a_line(inputs):
    outcome = conduct(inputs, RUNS, lambda missing: _Killed(1))
    assert len(outcome.results) + len(outcome.failures) == len(RUNS)
    lost = [each for _, each in outcome.failed if each.message.startswith("its process was killed")]
    assert len(lost) >= len(RUNS) - 3  # it was killed as soon as it had started


def test_a_worker_that_is_killed_fails_its_runs_in_a_line(inputs):
    outcome = conduct(
        inputs, [replace(RUNS[0], settings=RunSettings(policy="fifo", check=True))],
        lambda missing: _Killed(1),
    )  # fmt: skip
    ((_, failed),) = outcome.failed
    assert failed.message.startswith("its process was killed")


class _Killed(Processes):
    """Processes whose worker is killed while it works."""

    def start(self, inputs, runs, on_progress):
        import threading  # noqa: PLC0415

        def kill():
            while not (children := multiprocessing.active_children()):
                time.sleep(0.001)
            children[0].kill()

        threading.Thread(target=kill, daemon=True).start()
        return super().start(inputs, runs, on_progress)


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask"), workers=1) as address:
        yield address


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # a library's own warnings are not ours
def test_a_dask_cluster_gives_the_same_bytes(inputs, expected, dask):
    executor = executor_of(f"dask://{dask}", runs=len(RUNS))
    outcome = conduct(inputs, RUNS, lambda missing: executor)
    assert bytes_of(outcome) == bytes_of(expected)
    assert len(outcome.failed) == 4


def test_a_word_names_an_executor_and_a_single_run_stays_in_this_process():
    assert isinstance(executor_of("", runs=1), InProcess)
    assert isinstance(executor_of("processes", runs=1), InProcess)
    assert isinstance(executor_of("processes:1", runs=9), InProcess)
    made = executor_of("processes:3", runs=9)
    assert isinstance(made, Processes)
    assert made.workers == 3


@pytest.mark.parametrize("word", ["threads", "processes:", "processes:0", "processes:x", "dask:x"])
def test_another_word_is_refused(word):
    with pytest.raises(BadInput, match="is not known; known: processes, processes:N, dask://HOST"):
        executor_of(word, runs=2)
