"""Links between nodes, daemon and database are cut, slow, or broken at any moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from dlsched.client.daemon_client import filter_of
from dlsched.core.errors import DlschedError
from dlsched.torture.local_cluster import LocalCluster, eventually
from dlsched.torture.relay import Relay
from tests.live.witnessed import Witnessed
from tests.postgres import PostgresCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def link() -> Iterator[Relay]:
    """Between n1's agent and the daemon."""
    with LocalCluster(nodes=2) as cluster, Relay(cluster.port) as made:
        cluster.kill("n1")
        cluster.reached_at["n1"] = made.port
        cluster.start_agent("n1")
        cluster.wait_until_up()
        made.cluster = cluster  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def cut_off(link: Relay) -> Iterator[tuple[LocalCluster, Witnessed, Relay]]:
    """A cluster whose n1 can be cut off, and its jobs."""
    cluster: LocalCluster = link.cluster  # type: ignore[attr-defined]
    made = Witnessed(cluster)
    yield cluster, made, link
    made.check()


Cut = tuple[LocalCluster, Witnessed, Relay]


@pytest.mark.parametrize(
    "ways", [{}, {"up": False}, {"down": False}], ids=["both", "answers", "reports"]
)
def test_a_node_that_is_cut_off_keeps_its_jobs_and_they_run_nowhere_else(
    cut_off: Cut, ways: dict[str, bool]
) -> None:
    """`fence = "hold"`: they run on; one ends meanwhile; nothing begins anew."""
    cluster, seen, link = cut_off
    gate = cluster.folder / "gate"
    hold = {"nodelist": "n1", "fence": "hold"}
    stays = seen.submit("sleep 600", retries="1", **hold)
    ends = seen.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 7", **hold)
    for job in (stays, ends):
        cluster.until(job, "RUNNING")
        eventually("it began", lambda j=job: seen.began(j) == 1)
    link.cut(**ways)
    gate.touch()
    eventually("one has ended", lambda: any(line[3] == "end" for line in seen.lines(ends)))
    eventually("n1 is late", lambda: cluster.node("n1").state.startswith("late"))
    if ways != {"up": False}:  # else what the node says still arrives
        assert cluster.job(ends).state == "RUNNING"
    elsewhere = seen.submit("true")
    assert cluster.until(elsewhere, "COMPLETED").nodes == ("n2",)
    seen.check()
    link.heal()
    link.sever()
    assert cluster.until(ends, "FAILED").exit_code == 7
    cluster.wait_until_up()
    assert {job.starts for job in cluster.jobs([stays, ends])} == {1}
    assert (cluster.job(stays).state, seen.began(stays)) == ("RUNNING", 1)


def test_an_unstable_link_requeues_no_job(cut_off: Cut) -> None:
    cluster, seen, link = cut_off
    stays = seen.submit("sleep 600", nodelist="n1", retries="1")
    eventually("it began", lambda: seen.began(stays) == 1)
    pause = threading.Event()
    for _ in range(6):
        link.cut()
        pause.wait(0.5)
        link.heal()
        link.sever()
        pause.wait(0.5)
    brief = seen.submit("true", nodelist="n1")
    cluster.until(brief, "COMPLETED")
    with cluster.client() as client:
        [told] = client.show(filter_of([str(stays)]))
    assert (told.job.state, told.job.starts, seen.began(stays)) == ("RUNNING", 1, 1)
    assert "requeue" not in [event.kind for event in told.events]


def test_an_agent_that_was_paused_goes_on_with_what_it_has(
    small: LocalCluster, seen: Witnessed
) -> None:
    gate = small.folder / "gate"
    stays = seen.submit("sleep 600", nodelist="n1")
    ends = seen.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 9", nodelist="n1")
    for job in (stays, ends):
        small.until(job, "RUNNING")
        eventually("it began", lambda j=job: seen.began(j) == 1)
    agent = small.processes["n1"]
    agent.send_signal(signal.SIGSTOP)
    gate.touch()
    eventually("n1 is late", lambda: small.node("n1").state.startswith("late"))
    agent.send_signal(signal.SIGCONT)
    assert small.until(ends, "FAILED").exit_code == 9
    small.wait_until_up()
    assert {job.starts for job in small.jobs([stays, ends])} == {1}


def test_a_gang_whose_node_dies_ends_whole_and_begins_once_more_elsewhere() -> None:
    with LocalCluster(nodes=3) as cluster:
        seen = Witnessed(cluster)
        gang = seen.submit("sleep 600", nodes="2", gpus_per_node="2", launch="node", retries="0")
        eventually("both ranks", lambda: seen.began(gang) == 2)
        dead = cluster.job(gang).nodes[1]
        cluster.power_off(dead)
        cluster.confirm_down(dead)
        eventually("both ranks again", lambda: seen.began(gang) == 4)
        again = cluster.until(gang, "RUNNING")
        assert (again.starts, again.failures) == (2, 0)
        assert dead not in again.nodes
        seen.check()


def test_a_suspended_job_whose_node_dies_begins_elsewhere(
    small: LocalCluster, seen: Witnessed
) -> None:
    cluster = small
    job = seen.submit("sleep 600", nodelist="n1,n2", gpus="1")
    where = cluster.until(job, "RUNNING").nodes[0]
    cluster.cli("suspend", str(job))
    cluster.until(job, "SUSPENDED")
    cluster.power_off(where)
    cluster.confirm_down(where)
    cluster.cli("release", str(job), check=False)
    again = cluster.until(job, "RUNNING")
    assert again.starts == 2
    assert again.nodes != (where,)


# -- the database ----------------------------------------------------------------------------------


@pytest.fixture
def behind(postgres_cluster: PostgresCluster) -> Iterator[tuple[str, Relay]]:
    """A Postgres database behind a link."""
    url = make_url(postgres_cluster.make())
    folder, number = url.query["host"], url.query.get("port", str(url.port or 5432))
    with Relay(f"{folder}/.s.PGSQL.{number}") as link:
        query = {k: v for k, v in url.query.items() if k not in ("host", "port")}
        through = url.set(host="127.0.0.1", port=link.port, query=query)
        yield through.render_as_string(hide_password=False), link
    postgres_cluster.drop(url.render_as_string(hide_password=False))


def test_a_database_that_is_away_at_the_start_is_waited_for(behind: tuple[str, Relay]) -> None:
    url, link = behind
    link.refuses = True
    cluster = LocalCluster(url, nodes=1)
    try:
        cluster.write_config()
        cluster.start_daemon()
        cluster.start_agent("n1")
        eventually("it says so", lambda: "database-away" in cluster.log("daemon"))
        assert cluster.processes["daemon"].poll() is None
        link.refuses = False
        cluster.wait_until_up()
        cluster.until(cluster.submit("true"), "COMPLETED")
    finally:
        cluster.__exit__(None, None, None)


def test_broken_connections_lose_no_job_and_repeat_none(
    behind: tuple[str, Relay],
) -> None:
    url, link = behind
    over = threading.Event()

    def break_them() -> None:
        pause_s = 0.7
        while not over.wait(pause_s):
            link.sever()
            pause_s *= 1.1  # on whatever machine, something is done in between at last

    with LocalCluster(url, nodes=2) as cluster:
        seen = Witnessed(cluster)
        breaker = threading.Thread(target=break_them)
        breaker.start()
        try:
            for k in range(15):
                eventually("accepted", lambda k=k: _try(seen, f"exit {k % 3}"))
        finally:
            over.set()
            breaker.join()
        for k, job in enumerate(seen.accepted):
            ended = cluster.until(job, "COMPLETED", "FAILED")
            assert (ended.exit_code, ended.starts) == (k % 3, 1)
        seen.check()


def _try(seen: Witnessed, body: str) -> int | None:
    try:
        return seen.submit(body)
    except DlschedError:
        return None


def test_a_slow_database_makes_rounds_slower_and_nothing_else(behind: tuple[str, Relay]) -> None:
    url, link = behind
    with LocalCluster(url, nodes=2) as cluster:
        seen = Witnessed(cluster)
        stays = seen.submit("sleep 600")
        cluster.until(stays, "RUNNING")
        link.delay_s = 0.25  # each way, so half a second a statement
        ended = seen.submit("exit 4")
        assert cluster.until(ended, "FAILED").exit_code == 4
        link.delay_s = 0.0
        cluster.wait_until_up()
        assert cluster.log("daemon", 100_000).count("event=deposed") <= 1
        assert (cluster.job(stays).state, cluster.job(stays).starts) == ("RUNNING", 1)
        seen.check()
