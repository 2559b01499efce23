"""An agent is killed while its jobs run and end: they run on, and their ends come later."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


def test_ends_while_the_agent_was_away_are_kept(small: LocalCluster) -> None:
    gate = small.folder / "gate"
    wait = f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done"
    scripts = [f"{wait}; exit 0", f"{wait}; exit 3", f"{wait}; kill -SEGV $$", "echo up; sleep 600"]
    jobs = [small.submit(script, nodelist="n1") for script in scripts]
    for job in jobs:  # a run is released before it begins
        eventually("it began", lambda job=job: small.output(job))
    small.kill("n1")
    gate.touch()
    folder = small.folder / "n1" / "state"
    eventually("three records", lambda: len(list(folder.glob("**/exit.json"))) >= 3)
    restarted = time.time()
    small.start_agent("n1")
    ok, three, fault = (small.until(job, "COMPLETED", "FAILED") for job in jobs[:3])
    assert (ok.state, ok.exit_code) == ("COMPLETED", 0)
    assert (three.state, three.exit_code) == ("FAILED", 3)
    assert (fault.state, fault.exit_signal) == ("FAILED", 11)
    assert all(each.ended_at < restarted for each in (ok, three, fault))  # when they did
    assert small.job(jobs[3]).state == "RUNNING"
    assert {job.starts for job in small.jobs(jobs)} == {1}


def test_a_run_that_was_lost_with_its_keeper_is_charged(small: LocalCluster) -> None:
    job = small.submit("echo up; sleep 600", nodelist="n1", gpus="2", no_requeue=True)
    eventually("it began", lambda: small.output(job))
    began = time.time()
    (record,) = (small.folder / "n1" / "state").glob("jobs/*/run.json")
    keeper = psutil.Process(json.loads(record.read_text())["keeper"]["pid"])
    eventually("it has run for a second", lambda: time.time() > began + 1.0)
    keeper.kill()
    small.until(job, "NODE_FAIL")
    [shown] = json.loads(small.cli("history", "-j", str(job), "--json"))["jobs"]
    assert "keeper-lost" in shown["reason"]
    assert shown["run_s"] >= 1.0
    assert shown["gpu_s"] == pytest.approx(2 * shown["run_s"], abs=0.02)  # both are rounded


def test_a_job_whose_keeper_is_lost_begins_once_more_and_is_not_charged(
    small: LocalCluster,
) -> None:
    """Fault row C3: also while it is giving way."""
    runs = small.folder / "runs"
    script = f"trap '' TERM; echo $DLSCHED_RUN >>{runs}; [ $DLSCHED_RUN = 1 ] || exit 0; sleep 600"
    job = small.submit(script, nodelist="n1", gpus="2", retries="0", grace="10m")
    eventually("it began", runs.exists)
    (record,) = (small.folder / "n1" / "state").glob(f"jobs/{job}.*/run.json")
    keeper = psutil.Process(json.loads(record.read_text())["keeper"]["pid"])
    small.cli("requeue", str(job))
    eventually("it is leaving", lambda: small.job(job).state == "COMPLETING")
    keeper.kill()
    done = small.until(job, "COMPLETED")
    assert (done.starts, done.failures, runs.read_text()) == (2, 0, "1\n2\n")


def test_a_silent_node_keeps_its_jobs_until_an_operator_confirms_it_down(
    small: LocalCluster,
) -> None:
    """`fence = "hold"`: nothing restarts elsewhere until the old run is known to be over."""
    job = small.submit("sleep 600", gpus="4", retries="1", fence="hold")
    where = small.until_begun(job).nodes[0]
    small.kill(where)
    eventually("the node is late", lambda: small.node(where).state.startswith("late"))
    assert (small.job(job).state, small.job(job).starts) == ("RUNNING", 1)
    small.confirm_down(where)
    again = small.until(job, "RUNNING")
    assert again.starts == 2
    assert again.nodes != (where,)
