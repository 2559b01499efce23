"""The site's fencing command, from the configuration to a job that starts on another node."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.client.records import Node
from dlsched.core.errors import BadInput
from dlsched.daemon.settings import load_settings
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of
from tests.live.faults.networked_cluster import SHORT, has_settled
from tests.live.witnessed import Witnessed

pytestmark = pytest.mark.slow
# the test itself is the power strip: the command asks, and waits for the answer
COMMAND = """#!/bin/bash
echo "$1 $$" >>{asked}
until mv {answer} {answer}.$$ 2>/dev/null; do sleep 0.05; done
cat {answer}.$$ >&2
exit "$(head -c 1 {answer}.$$)"
"""


@pytest.fixture(params=SELDOM_POSTGRES)
def fenced(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three nodes, a short window, and a fencing command."""
    cluster = LocalCluster(database_of(request), nodes=3, timing=SHORT)
    command = cluster.folder / "power-off"
    asked, answer = cluster.folder / "asked", cluster.folder / "answer"
    command.write_text(COMMAND.format(asked=asked, answer=answer))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    cluster.sections["fencing"] = {"command": [str(command), "{node}"], "timeout_s": 300}
    with cluster:
        eventually("every node has the newest witnesses alone", lambda: has_settled(cluster))
        yield cluster


def answer_with(fenced: LocalCluster, words: str) -> None:
    """Let the command that waits end with the code that the words begin with."""
    new = fenced.folder / "answer.new"
    new.write_text(words)
    new.rename(fenced.folder / "answer")


def test_a_node_that_the_site_switches_off_gives_its_jobs_to_others(fenced: LocalCluster) -> None:
    seen, asked = Witnessed(fenced), fenced.folder / "asked"
    job = seen.submit("sleep 600", fence="hold", retries="0")
    where = fenced.until(job, "RUNNING").nodes[0]
    eventually("it began", lambda: seen.began(job) == 1)
    fenced.processes[where].send_signal(signal.SIGSTOP)  # the node hangs

    def node() -> Node:
        return fenced.node(where)

    eventually("the command is asked", asked.exists)
    eventually("that is shown", lambda: "the fencing command runs" in node().reason)
    answer_with(fenced, "1 no such outlet\n")
    told = "not known to be off: the fencing command ended with 1: 1 no such outlet (try 1 of 3)"
    eventually("that it failed is shown", lambda: told in node().reason)
    assert told in fenced.cli("admin", "status")
    assert (fenced.job(job).state, fenced.job(job).starts) == ("RUNNING", 1)
    assert asked.read_text().split()[0] == where
    eventually("it is tried again", lambda: len(asked.read_text().splitlines()) == 2)
    assert fenced.job(job).starts == 1  # while it runs, nothing is known
    fenced.power_off(where)
    answer_with(fenced, "0")
    again = eventually("it runs elsewhere", lambda: seen.began(job) == 2 and fenced.job(job))
    assert (again.state, again.starts, again.failures) == ("RUNNING", 2, 0)
    assert again.nodes != (where,)
    assert (node().state, node().reason) == ("down", "switched off by the fencing command")
    seen.check()
    fenced.start_agent(where)
    fenced.wait_until_up()
    assert len(asked.read_text().splitlines()) == 2
    seen.check()


def test_an_answer_after_the_node_was_heard_again_ends_nothing(fenced: LocalCluster) -> None:
    seen, asked = Witnessed(fenced), fenced.folder / "asked"
    job = seen.submit("sleep 600", fence="hold", retries="0")
    where = fenced.until(job, "RUNNING").nodes[0]
    eventually("it began", lambda: seen.began(job) == 1)
    fenced.processes[where].send_signal(signal.SIGSTOP)
    eventually("the command is asked", asked.exists)
    fenced.processes[where].send_signal(signal.SIGCONT)
    fenced.wait_until_up()
    answer_with(fenced, "0")
    eventually("it has ended", lambda: "event=fenced" in fenced.log("daemon", 100_000))
    after = seen.submit("true", nodelist=where)
    fenced.until(after, "COMPLETED")
    now = fenced.job(job)
    assert (now.state, now.starts, now.nodes) == ("RUNNING", 1, (where,))
    seen.check()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('command = ["power-off", "{node}"]', "not the full path of a program"),
        ('command = ["/sbin/power-off"]', "no word after the program has {node} in it"),
        ("timeout_s = 0", "timeout_s"),
    ],
)
def test_a_fencing_command_that_cannot_work_is_refused(
    tmp_path: Path, lines: str, said: str
) -> None:
    file = tmp_path / "dlsched.toml"
    file.write_text(f"[fencing]\n{lines}\n")
    with pytest.raises(BadInput) as refused:
        load_settings(file)
    assert said in str(refused.value)
