"""The daemon dies at every fault point, with real agents, on both databases."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.core.errors import DlschedError
from dlsched.system.fault_points import DAEMON
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import DATABASES, SELDOM_POSTGRES, database_of
from tests.live.witnessed import Witnessed

pytestmark = pytest.mark.slow


@contextmanager
def started_again_when_it_dies(cluster: LocalCluster, point: str) -> Iterator[threading.Event]:
    """A daemon that dies at a place, and a service manager; tells when it has died."""
    process = cluster.start_daemon(DLSCHED_FAULTPOINT=point)
    died, over = threading.Event(), threading.Event()

    def manage() -> None:
        while not over.wait(0.02):
            if process.poll() is not None:
                cluster.start_daemon()
                died.set()
                return

    thread = threading.Thread(target=manage)
    thread.start()
    try:
        yield died
    finally:
        over.set()
        thread.join()


def persist(submit: Witnessed, body: str, **options: object) -> int:
    """Submit until an id is printed; what was taken without an answer is not submitted again."""
    name = f"r{time.monotonic_ns()}"
    return eventually(
        "a submission is accepted", lambda: submit.submit(body, request_id=name, **options)
    )


@pytest.fixture(scope="module", params=DATABASES)
def surviving(request: pytest.FixtureRequest) -> Iterator[Witnessed]:
    """Two nodes whose daemon dies again and again; the first job runs through all of it."""
    with LocalCluster(database_of(request), nodes=2) as cluster:
        witnessed = Witnessed(cluster)
        stays = witnessed.submit("sleep 3600", nodelist="n1")
        eventually("it began", lambda: witnessed.began(stays) == 1)
        yield witnessed
        witnessed.check()


# these concern the daemon alone, and `tests/daemon/test_killed.py` has all points
SELDOM = {"after-submit-read", "before-round-decided", "after-round-decided"}


@pytest.mark.parametrize(
    ("surviving", "point"),
    [
        pytest.param(
            database,
            point,
            marks=pytest.mark.exhaustive if point in seldom else (),
        )
        for database, seldom in (
            ("sqlite", SELDOM),
            ("postgres", {*DAEMON} - {"after-commit-before-answer"}),
        )
        for point in DAEMON
    ],
    indirect=["surviving"],
    scope="module",
)
def test_at_whatever_point_the_daemon_dies_its_answers_hold(
    surviving: Witnessed, point: str
) -> None:
    """Jobs come, run, are preempted by hand and end while it dies there, and once more after."""
    witnessed, cluster = surviving, surviving.cluster
    stays = witnessed.accepted[0]
    cluster.kill("daemon")
    cluster.kill("n2")
    with started_again_when_it_dies(cluster, point) as died:
        cluster.start_agent("n2")
        eventually("it answers, or has died", lambda: cluster.run("queue").returncode == 0)
        gang = persist(witnessed, "sleep 0.2", nodes=2, gpus_per_node=1, launch="node")
        requeued = persist(witnessed, "[ $DLSCHED_RUN -gt 1 ] || sleep 600")
        held = persist(witnessed, "exit 3", hold="yes")
        eventually("it began", lambda: witnessed.began(requeued))
        for words in (("requeue", str(requeued)), ("release", str(held))):
            eventually(words[0], lambda w=words: cluster.run(*w).returncode == 0)
        eventually("the daemon has died", died.is_set)
    cluster.wait_until_up()
    witnessed.check()
    assert cluster.until(gang, "COMPLETED").starts == 1
    again = cluster.until(requeued, "COMPLETED")
    assert (again.failures, again.preemptions) == (0, 0)
    assert cluster.until(held, "FAILED").exit_code == 3
    unmoved = cluster.job(stays)
    assert (unmoved.state, unmoved.starts) == ("RUNNING", 1)


@pytest.mark.parametrize("cluster", SELDOM_POSTGRES, indirect=True)
def test_changes_of_operators_and_users_survive_a_restart(
    cluster: LocalCluster, witnessed: Witnessed
) -> None:
    running = witnessed.submit("sleep 600", gpus="4", nodelist="n1")
    cluster.until(running, "RUNNING")
    cluster.cli("drain", "n2", "--reason", "bad fan")
    cluster.cli("admin", "set-policy", "las")
    mine = witnessed.submit("true", hold="yes")
    theirs = witnessed.submit("true", nodelist="n2")
    cluster.cli("hold", str(theirs))
    later = witnessed.submit("true", begin="now+1hour")
    after = witnessed.submit("true", dependency=f"afterok:{running}")
    blocked = witnessed.submit("true", nodelist="n2")

    def told() -> list[str]:
        return [str(job.reason) for job in cluster.jobs([mine, theirs, later, after, blocked])]

    before = eventually("reasons", lambda: told() if "ReqNode" in told()[-1] else None)
    assert before == [
        "JobHeldUser",
        "JobHeldUser",
        "BeginTime",
        f"Dependency: afterok:{running}",
        "ReqNodeNotAvail: n2 takes no new work",
    ]
    cluster.kill("daemon")
    cluster.start_daemon()
    eventually("it answers", lambda: cluster.run("queue").returncode == 0)
    eventually("the same reasons", lambda: told() == before)
    eventually("drained", lambda: cluster.node("n2").state == "drained")
    assert cluster.node("n2").reason == "bad fan"
    with cluster.client() as client:
        assert client.status().policy == "las"
    assert (cluster.job(running).state, cluster.job(running).starts) == ("RUNNING", 1)


def test_a_daemon_that_was_paused_goes_on_without_harm(
    small: LocalCluster, seen: Witnessed
) -> None:
    """Jobs end and nodes beat while it believes that no time passes."""
    ends, stays = seen.submit("sleep 1; exit 5"), seen.submit("sleep 600")
    for job in (ends, stays):
        eventually("it began", lambda j=job: seen.began(j) == 1)
    daemon = small.processes["daemon"]
    daemon.send_signal(signal.SIGSTOP)
    eventually("it ended", lambda: any("end" in line for line in seen.lines(ends)))
    time.sleep(4)  # more than any window of nodes that are late
    daemon.send_signal(signal.SIGCONT)
    assert small.until(ends, "FAILED").exit_code == 5
    assert (small.job(stays).state, small.job(stays).starts) == ("RUNNING", 1)
    small.wait_until_up()


def test_an_array_whose_elements_fail_at_once_harms_no_other_job(
    small: LocalCluster, seen: Witnessed
) -> None:
    stays = seen.submit("sleep 600", gpus="4")
    small.until(stays, "RUNNING")
    with small.client() as client:
        first = client.submit(script=b"#!/bin/sh\nexit 1\n", array="0-99", output="/dev/null")

    def over() -> bool:
        return [job.state for job in small.jobs(range(first, first + 100))] == ["FAILED"] * 100

    eventually("all have failed", over)
    assert {job.starts for job in small.jobs(range(first, first + 100))} == {1}
    assert (small.job(stays).state, small.job(stays).starts) == ("RUNNING", 1)


def test_a_time_limit_counts_running_time(small: LocalCluster, seen: Witnessed) -> None:
    job = seen.submit("sleep 600", time="12s", grace="1s")
    small.until(job, "RUNNING")
    with small.client() as client:  # at once: a command would first have to start
        client.act("suspend", filter_of([str(job)]))
    small.until(job, "SUSPENDED")
    time.sleep(13)  # longer than the limit
    assert small.job(job).state == "SUSPENDED"
    small.cli("resume", str(job))
    ended = small.until(job, "TIMEOUT")
    assert (ended.starts, ended.failures) == (1, 0)


def test_a_submission_to_a_daemon_that_is_away_says_so(small: LocalCluster) -> None:
    small.kill("daemon")
    with pytest.raises(DlschedError):
        small.submit("true")
    done = small.run("queue", "--daemon-wait", "0")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    small.start_daemon()
    small.wait_until_up()
