"""Lucid's simulator, job for job: six policies on real arrivals, and tiny cases.

Times are whole seconds and the sums of floats are those of the simulator, so nothing is tolerated.
"""

from __future__ import annotations

import numpy as np
import pytest

from simulate.replay import replay
from simulate.results.tables import JobOutcomes
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.fidelity.lucid_cases import FOLDER, SEMANTICS, cases, cluster_of, golden, jobs_of

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]


def settings_of(policy: str) -> RunSettings:
    options = [f"semantics={SEMANTICS.get(policy, 'lucid-queue')}"]
    if policy != "qssf":
        return RunSettings(policy=policy, options=tuple(options), record=False)
    options.append("estimator.column=est_qssf_s")
    return RunSettings(policy=policy, estimate="declared", options=tuple(options), record=False)


def waited(jobs: JobOutcomes) -> np.ndarray:
    """Seconds without GPUs between submit and end."""
    return jobs.jct - jobs.gpu_seconds / jobs.num_gpus


@pytest.mark.parametrize(("case", "policy"), [each for each in cases() if each[1] != "lucid"])
def test_every_job_starts_waits_and_ends_as_in_the_simulator(case: str, policy: str) -> None:
    expected = golden(case, policy)
    jobs = replay(open_trace(jobs_of(case)), cluster_of(case), settings_of(policy)).jobs
    assert set(jobs.job_id.tolist()) == set(expected)
    rows = [expected[job] for job in jobs.job_id]
    assert jobs.first_start_time.tolist() == [float(row["start_time"]) for row in rows]
    assert jobs.finish_time.tolist() == [float(row["end_time"]) for row in rows]
    assert waited(jobs).tolist() == [float(row["queue"]) for row in rows]
    if "ckpt_times" in rows[0]:
        assert jobs.preemptions.tolist() == [int(row["ckpt_times"]) for row in rows]


# GPUs, submit, duration
A = [(8, 0, 100), (4, 1, 50), (2, 2, 10), (16, 3, 30), (1, 4, 20), (4, 60, 5)]
B = [(8, 0, 3000), (8, 60, 600), (4, 90, 200), (8, 2400, 100)]
TINY = {
    ("A", "fifo"): "1:0-100 2:1-51 3:2-12 4:100-130 5:130-150 6:130-135",
    ("A", "sjf"): "1:0-100 2:1-51 3:2-12 4:100-130 5:4-24 6:60-65",
    ("A", "qssf"): "1:0-100 2:1-51 3:2-12 4:100-130 5:4-24 6:60-65",
    ("A", "srtf"): "1:0-272 2:1-52 3:2-13 4:52-149 5:4-25 6:60-66",
    ("A", "tiresias"): "1:0-101 2:60-111 3:60-71 4:120-151 5:60-81 6:180-186",
    ("B", "fifo"): "1:0-3000 2:3000-3600 3:3600-3800 4:3800-3900",
    ("B", "sjf"): "1:0-3000 2:3300-3900 3:3100-3300 4:3000-3100",
    ("B", "qssf"): "1:0-3000 2:3300-3900 3:3000-3200 4:3200-3300",
    ("B", "srtf"): "1:0-4024 2:60-902 3:90-291 4:2400-2501",
    ("B", "tiresias"): "1:0-4061 2:2280-2881 3:2940-3141 4:3180-3281",
}
INTERRUPTED = {  # preemptions, and seconds without GPUs
    ("A", "srtf"): {1: (2, 91), 4: (1, 55)},
    ("B", "srtf"): {1: (2, 943), 2: (1, 201)},
    ("B", "tiresias"): {1: (1, 1020)},
}


@pytest.mark.parametrize(("case", "policy"), TINY)
def test_a_tiny_case_comes_out_as_worked_out(lab, case: str, policy: str) -> None:
    jobs = {"A": A, "B": B}[case]
    rows = lab.trace([(s, g, d) for g, s, d in jobs], names=[str(n + 1) for n in range(len(jobs))])
    found = lab.run(
        rows,
        policy,
        cluster={"A": "2x8", "B": "1x8"}[case],
        options=(f"semantics={SEMANTICS.get(policy, 'lucid-queue')}",),
    ).jobs
    shown = " ".join(
        f"{job}:{start:g}-{end:g}"
        for job, start, end in zip(
            found.job_id, found.first_start_time, found.finish_time, strict=True
        )
    )
    assert shown == TINY[case, policy]
    for job, counted in INTERRUPTED.get((case, policy), {}).items():
        assert (found.preemptions[job - 1], waited(found)[job - 1]) == counted
