"""A daemon that is paused while another takes over writes nothing more (Postgres)."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.client.daemon_client import Client
from dlsched.core.errors import DlschedError
from dlsched.protocol.timing import STALE_S
from dlsched.torture.local_cluster import LocalCluster, eventually, free_port
from tests.live.witnessed import Witnessed
from tests.postgres import PostgresCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def two(postgres_cluster: PostgresCluster) -> Iterator[LocalCluster]:
    """A cluster whose agents know two daemons; the second one waits."""
    url = postgres_cluster.make()
    with LocalCluster(url, nodes=2) as cluster:
        for name in cluster.names:
            cluster.kill(name)
        second = free_port()
        cluster.daemons = [cluster.port, second]
        listen = [f"unix:{cluster.folder}/second/d.sock", f"127.0.0.1:{second}"]
        (cluster.folder / "second").mkdir()
        text = cluster.write_config().read_text()
        first = f'listen = ["unix:{cluster.folder}/d.sock", "127.0.0.1:{cluster.port}"]'
        assert first in text
        both = str(listen).replace("'", '"')
        (cluster.folder / "second.toml").write_text(text.replace(first, f"listen = {both}"))
        cluster.start_daemon("second", config="second.toml")
        for name in cluster.names:
            cluster.start_agent(name)
        cluster.wait_until_up()
        yield cluster
    postgres_cluster.drop(url)


@pytest.mark.slow
def test_a_paused_leader_steps_down_and_nothing_runs_twice(two: LocalCluster) -> None:
    seen = Witnessed(two)
    gate = two.folder / "gate"
    stays = seen.submit("sleep 600")
    ends = seen.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 7")
    for job in (stays, ends):
        two.until(job, "RUNNING")
        eventually("it began", lambda j=job: seen.began(j) == 1)
    first_port, second_port = two.daemons
    eventually("it stands by", lambda: _status(two, first_port)["standbys"])
    first, second = (_status(two, port) for port in two.daemons)
    assert (first["standby"], second["standby"]) == (False, True)
    assert second["leader"] == first["leader"]
    assert len(first["standbys"]) == 1
    paused = two.processes["daemon"]
    paused.send_signal(signal.SIGSTOP)
    both = f"127.0.0.1:{first_port},127.0.0.1:{second_port}"
    two.cli("queue", "--daemon", both, "--daemon-wait", "110s")  # follows to the second
    gate.touch()
    quiet_s = float(re.findall(r"no heartbeat of the leader for (\d+) s", two.log("second"))[0])
    assert quiet_s >= STALE_S - 1
    two.port = second_port
    assert (_status(two, second_port)["leader"], _status(two, second_port)["standbys"]) == (
        first["standbys"][0],
        [],
    )
    assert two.until(ends, "FAILED").exit_code == 7
    more = seen.submit("true")
    two.until(more, "COMPLETED")
    paused.send_signal(signal.SIGCONT)

    def stepped_down() -> bool:
        """It takes nothing any more."""
        with Client(f"127.0.0.1:{first_port}", insecure_loopback=True, wait="0") as client:
            try:
                client.submit(["true"])
            except DlschedError as error:
                return "lead" in str(error)
        raise AssertionError("a daemon that was deposed took a submission")

    eventually("the first says that it does not lead", stepped_down)
    eventually("it stands by", lambda: _status(two, first_port)["standby"])
    last = seen.submit("true")
    two.until(last, "COMPLETED")
    assert (two.job(stays).state, two.job(stays).starts) == ("RUNNING", 1)
    seen.check()


def _status(cluster: LocalCluster, port: int) -> dict[str, Any]:
    """What `dlsched admin status` prints of one daemon."""
    told = cluster.cli("admin", "status", "--json", "--daemon", f"127.0.0.1:{port}")
    status: dict[str, Any] = json.loads(told)["status"]
    return status
