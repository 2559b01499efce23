"""The daemon is killed at any moment: no job is lost, stopped or run twice."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from dlsched.core.errors import DlschedError
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_every_job_of_submits_that_are_each_followed_by_kill_9_runs_once(
    cluster: LocalCluster, times: int
) -> None:
    marks = cluster.folder / "marks"
    marks.mkdir()
    accepted = []
    for _ in range(times):
        accepted.append(cluster.submit(f"echo x >> {marks}/$DLSCHED_JOB_ID"))
        cluster.kill("daemon")
        cluster.start_daemon()
        cluster.wait_until_up()
    assert len(set(accepted)) == times
    for job in accepted:
        cluster.until(job, "COMPLETED")
    ran = Counter({path.name: len(path.read_text().split()) for path in marks.iterdir()})
    assert ran == Counter({str(job): 1 for job in accepted})


def test_commands_wait_out_restarts_and_no_submission_is_lost_or_doubled(
    small: LocalCluster,
) -> None:
    """Two streams of `submit` run on while the daemon is killed and away, twice."""
    marks = small.folder / "marks"
    marks.mkdir()
    script = f"echo x >> {marks}/$DLSCHED_JOB_ID"

    def stream(name: str) -> list[str]:
        return [
            small.cli("submit", "--parsable", "--request-id", f"{name}.{k}", "--wrap", script)
            for k in range(4)
        ]

    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(stream, name) for name in ("a", "b")]
        for k in range(2):
            eventually("some were taken", lambda k=k: len([*marks.iterdir()]) > 2 * k)
            small.kill("daemon")
            shown = [pool.submit(small.cli, *words) for words in (("queue",), ("show", "1"))]
            time.sleep(1.0)  # how long the daemon is away
            small.start_daemon()
            assert all(each.result() for each in shown)
        ids = [int(job) for each in streams for job in each.result()]
    assert len(set(ids)) == 8
    for job in ids:
        small.until(job, "COMPLETED")
    ran = Counter({path.name: len(path.read_text().split()) for path in marks.iterdir()})
    assert ran == Counter({str(job): 1 for job in ids})
    again = small.run("submit", "--parsable", "--request-id", "a.0", "--wrap", script)
    assert int(again.stdout) in ids
    other = small.run("submit", "--request-id", "a.0", "--", "true")
    assert other.returncode == 1
    assert "request id 'a.0' stands for job" in other.stderr


@pytest.mark.parametrize("cluster", SELDOM_POSTGRES, indirect=True)
def test_jobs_run_on_while_the_daemon_is_away(cluster: LocalCluster) -> None:
    """One job ends meanwhile, with 7."""
    gate = cluster.folder / "gate"
    ends = cluster.submit(f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; exit 7")
    stays = cluster.submit("echo up; sleep 600")
    for job in (ends, stays):
        eventually("it began", lambda job=job: cluster.output(job))
        cluster.until(job, "RUNNING")  # also as the daemon has stored it
    cluster.kill("daemon")
    with pytest.raises(DlschedError):
        cluster.job(ends)
    gate.touch()
    records = cluster.folder.glob
    eventually(
        "its end is on the node's disk", lambda: [*records(f"n*/state/jobs/{ends}.*/exit.json")]
    )
    cluster.start_daemon()
    cluster.wait_until_up()
    ended = cluster.until(ends, "FAILED")
    assert (ended.exit_code, ended.exit_signal, ended.starts) == (7, 0, 1)
    assert "7:0" in cluster.cli("history", "-j", str(ends), "-o", "exit")
    assert (cluster.job(stays).state, cluster.job(stays).starts) == ("RUNNING", 1)
