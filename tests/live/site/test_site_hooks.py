"""The site's hooks on a real node: what they get, what their failure costs, what no crash skips."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import QUICK, LocalCluster, eventually

pytestmark = pytest.mark.slow

# what a hook does is in a file named after it, so that a test can change it
HOOK = """#!/bin/bash
echo "$DLSCHED_HOOK $DLSCHED_JOB_ID $DLSCHED_RUN $$" >>{folder}/hooks.txt
env >{folder}/$DLSCHED_HOOK-environment.txt
. {folder}/$DLSCHED_HOOK.sh
"""


class Hooked(LocalCluster):
    """A cluster whose agents have a prolog, an epilog and a health check."""

    def __init__(self, nodes: int, **faults: int) -> None:
        super().__init__(
            nodes=nodes, timing={**QUICK, "prepare_s": 15.0}, tables={"faults": faults}
        )
        self.hook = self.folder / "hook"
        self.hook.write_text(HOOK.format(folder=self.folder))
        self.hook.chmod(self.hook.stat().st_mode | stat.S_IXUSR)
        for name in ("prolog", "epilog", "health"):
            self.says(name, "")

    def says(self, name: str, script: str) -> None:
        """What a hook does from now on."""
        new = self.folder / f"{name}.new"
        new.write_text(script + "\n")
        new.rename(self.folder / f"{name}.sh")

    def _agent_tables(self, name: str) -> dict[str, Mapping[str, Any]]:
        found = super()._agent_tables(name)
        hooks: dict[str, object] = {
            "prolog": str(self.hook), "prolog_limit_s": 6.0,
            "epilog": [str(self.hook), "a word"], "epilog_limit_s": 6.0,
            "health": str(self.hook), "health_every_s": 0.2,
        }  # fmt: skip
        return {**found, "hooks": hooks}

    def ran(self, job: int) -> list[str]:
        """The hooks that were started for a job, each with its run."""
        lines = (self.folder / "hooks.txt").read_text().splitlines()
        found = [line.split() for line in lines if not line.startswith("health")]
        return [f"{hook} {run}" for hook, number, run, _ in found if int(number) == job]

    def hook_pid(self, name: str) -> int:
        """The process of the newest hook of a name."""
        lines = (self.folder / "hooks.txt").read_text().splitlines()
        return [int(line.split()[-1]) for line in lines if line.startswith(name)][-1]

    def drained(self, name: str) -> str:
        """Why a node is drained; empty while it is not."""
        node = self.node(name)
        return node.reason if node.state in ("drained", "draining") else ""

    def resume(self, name: str) -> None:
        """Give a node work again, as an operator does."""
        self.cli("resume-node", name)


@pytest.fixture(scope="module")
def both() -> Iterator[Hooked]:
    """Two nodes with hooks."""
    with Hooked(nodes=2, failed_starts=1) as cluster:  # one job is enough for what is tested
        yield cluster


@pytest.fixture
def hooked(both: Hooked) -> Hooked:
    """The nodes, both up, with hooks that do nothing."""
    for name in ("prolog", "epilog", "health"):
        both.says(name, "")
    for name in both.names:
        if both.drained(name):
            both.resume(name)
    return both


def test_hooks_run_before_and_after_a_job_as_root_in_a_clean_environment(hooked: Hooked) -> None:
    script = f"cat {hooked.folder}/hooks.txt >seen.txt; exit 3"
    job = hooked.submit(script, name="train", export="ALL,SECRET=x")
    hooked.until(job, "FAILED")
    assert hooked.ran(job) == ["prolog 1", "epilog 1"]
    seen = (hooked.folder / "seen.txt").read_text()
    assert f"prolog {job} 1" in seen
    assert f"epilog {job} 1" not in seen
    for name in ("prolog", "epilog"):
        lines = (hooked.folder / f"{name}-environment.txt").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        assert found["DLSCHED_JOB_NAME"] == "train"
        assert found["SLURM_JOB_ID"] == str(job)
        assert found["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
        assert not {"SECRET", "HOME", "DLSCHED_DAEMON"} & found.keys()
    assert (found["DLSCHED_END"], found["DLSCHED_EXIT_CODE"]) == ("exited", "3")
    assert not hooked.drained(hooked.job(job).nodes[0])


def test_a_failing_prolog_drains_its_node_and_costs_the_job_nothing(hooked: Hooked) -> None:
    hooked.says("prolog", 'if [ $DLSCHED_NODE = n1 ]; then echo "no scratch disk"; exit 7; fi')
    job = hooked.submit("true", nodelist="n1", retries="0")
    why = f"the last: prolog ended with 7: no scratch disk (job {job})"
    eventually("n1 is drained", lambda: hooked.drained("n1").endswith(why))
    waiting = hooked.job(job)
    assert (waiting.state, waiting.failures) == ("PENDING", 0)
    assert "no scratch disk" in hooked.cli("show", str(job))
    assert set(hooked.ran(job)) == {f"{hook} {n}" for n in (1,) for hook in ("prolog", "epilog")}
    hooked.says("prolog", "")
    hooked.resume("n1")
    done = hooked.until(job, "COMPLETED")
    assert (done.failures, done.preemptions) == (0, 0)


def test_a_gang_whose_prolog_fails_on_one_node_begins_nowhere(hooked: Hooked) -> None:
    hooked.says("prolog", "[ $DLSCHED_NODE != n2 ]")
    job = hooked.submit("true", nodes="2", gpus_per_node="1", launch="node")
    eventually("n2 is drained", lambda: "prolog ended with 1" in hooked.drained("n2"))
    hooked.says("prolog", "")
    hooked.resume("n2")
    done = hooked.until(job, "COMPLETED")
    assert done.failures == 0
    assert hooked.ran(job).count("prolog 1") == hooked.ran(job).count("epilog 1")


def test_a_prolog_that_hangs_is_killed_and_a_cancel_does_not_wait_for_it(hooked: Hooked) -> None:
    hooked.says("prolog", "sleep 600")
    job = hooked.submit("true", nodelist="n1")
    eventually("it is in the prolog", lambda: hooked.ran(job) == ["prolog 1"])
    hooked.cli("cancel", str(job))
    hooked.until(job, "CANCELLED")
    assert not hooked.drained("n1")  # the cancel has ended the hook: that is no fault
    slow = hooked.submit("true", nodelist="n1")
    eventually("it is drained", lambda: "prolog took longer than 6 s" in hooked.drained("n1"))
    hooked.says("prolog", "")
    hooked.resume("n1")
    hooked.until(slow, "COMPLETED")


@pytest.mark.parametrize(
    "script", ["echo left over; exit 4", pytest.param("sleep 600", marks=pytest.mark.slow)]
)
def test_a_failing_epilog_drains_its_node_and_keeps_the_job_s_end(
    hooked: Hooked, script: str
) -> None:
    hooked.says("epilog", script)
    job = hooked.submit("exit 5", nodelist="n2", retries="0")
    ended = hooked.until(job, "FAILED")
    assert ended.exit_code == 5
    said = "epilog ended with 4: left over" if "echo" in script else "epilog took longer than 6 s"
    eventually("it is drained", lambda: said in hooked.drained("n2"))
    hooked.says("epilog", "")
    hooked.resume("n2")


def test_gpus_are_not_given_out_before_the_epilog_has_ended(hooked: Hooked) -> None:
    gate = hooked.folder / "gate"
    hooked.says("epilog", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    first = hooked.submit("true", nodelist="n1", gpus="4")
    eventually("it is in the epilog", lambda: "epilog 1" in hooked.ran(first))
    second = hooked.submit("true", nodelist="n1", gpus="4")
    assert hooked.job(second).state == "PENDING"
    gate.touch()
    hooked.until(second, "COMPLETED")
    hooked.says("epilog", "")
    log = (hooked.folder / "hooks.txt").read_text()
    assert log.index(f"epilog {first} 1") < log.index(f"prolog {second} 1")


def test_an_agent_that_is_killed_in_a_hook_runs_nothing_twice(hooked: Hooked) -> None:
    gate = hooked.folder / "gate-of-agents"
    wait = (
        f"for ((k = 0; k < 2000; k++)); do [ -e {gate}-$DLSCHED_HOOK ] && break; sleep 0.05; done"
    )
    began = hooked.folder / "began.txt"
    hooked.says("epilog", wait.replace("2000", "50"))
    hooked.says("prolog", wait.replace("2000", "50"))
    job = hooked.submit(f"echo began >>{began}", nodelist="n1")
    for hook in ("prolog", "epilog"):
        eventually(f"it is in the {hook}", lambda hook=hook: f"{hook} 1" in hooked.ran(job))
        hooked.kill("n1")
        hooked.start_agent("n1")
        Path(f"{gate}-{hook}").touch()
    hooked.until(job, "COMPLETED")
    assert hooked.ran(job) == ["prolog 1", "epilog 1"]
    assert began.read_text() == "began\n"
    hooked.wait_until_up()


@pytest.mark.parametrize("agent_too", [False, True])
def test_a_killed_keeper_s_epilog_is_run_by_the_agent(hooked: Hooked, agent_too: bool) -> None:
    gate = hooked.folder / f"gate-of-keepers-{agent_too}"
    hooked.says(
        "epilog", f"for ((k = 0; k < 50; k++)); do [ -e {gate} ] && break; sleep 0.05; done"
    )
    job = hooked.submit("exit 6", nodelist="n2", retries="0")
    eventually("it is in the epilog", lambda: hooked.ran(job) == ["prolog 1", "epilog 1"])
    keeper = _keeper_of(hooked, job)
    if agent_too:
        hooked.kill("n2")
    os.kill(keeper, signal.SIGKILL)
    if agent_too:
        hooked.start_agent("n2")
    eventually("the agent runs it", lambda: hooked.ran(job).count("epilog 1") == 2)
    gate.touch()
    ended = hooked.until(job, "FAILED")
    assert ended.exit_code == 6  # as the keeper wrote it before the epilog
    hooked.says("epilog", "")
    hooked.wait_until_up()


def _keeper_of(cluster: Hooked, job: int) -> int:
    [file] = (cluster.folder / "n2" / "state" / "jobs").glob(f"{job}.*/run.json")
    return int(json.loads(file.read_text())["keeper"]["pid"])


def test_a_failing_health_check_drains_its_node_until_an_operator_resumes_it(
    hooked: Hooked,
) -> None:
    hooked.says("health", 'if [ $DLSCHED_NODE = n1 ]; then echo "disk is full"; exit 2; fi')
    eventually(
        "n1 is drained", lambda: hooked.drained("n1") == "health check ended with 2: disk is full"
    )
    assert not hooked.drained("n2")
    hooked.says("health", "")
    eventually(
        "the agent saw it pass",
        lambda: 'health-check node=n1 failed=""' in hooked.log("n1", 50_000),
    )
    hooked.resume("n1")
    hooked.until(hooked.submit("true", nodelist="n1"), "COMPLETED")
    assert not hooked.drained("n1")


@pytest.fixture
def three() -> Iterator[Hooked]:
    """Three nodes with hooks, as a site has them by default."""
    with Hooked(nodes=3) as cluster:
        yield cluster


def test_a_prolog_that_fails_for_one_job_holds_it_and_drains_no_node(three: Hooked) -> None:
    three.says("prolog", '[ "$DLSCHED_JOB_NAME" != bad ] || { echo "no such project"; exit 7; }')
    bad = [three.submit("true", name="bad") for _ in range(2)]
    for job in bad:
        eventually(f"{job} is held", lambda job=job: three.job(job).held)
        assert len(three.ran(job)) == 4, job  # a prolog and an epilog on each of two nodes
        assert "launch failed requeued held" in three.cli("queue", "-j", str(job))
        shown = three.cli("show", str(job))
        assert "its prolog has failed on n" in shown
        assert "no such project" in shown
    good = three.submit("true")
    three.until(good, "COMPLETED")
    assert [three.drained(name) for name in three.names] == ["", "", ""]
    three.says("prolog", "")
    for job in bad:
        three.cli("release", str(job))
        assert three.until(job, "COMPLETED").failures == 0


def test_a_node_whose_prolog_fails_for_different_jobs_is_drained(three: Hooked) -> None:
    three.says("prolog", '[ "$DLSCHED_NODE" != n2 ] || { echo "no scratch disk"; exit 7; }')
    busy = [three.submit("sleep 600", nodelist=name, gpus="4") for name in ("n1", "n3")]
    for job in busy:
        three.until(job, "RUNNING")
    failed = [three.submit("true") for _ in range(3)]
    eventually("n2 is drained", lambda: "no scratch disk" in three.drained("n2"))
    why = "its start has failed on n2"  # once their pauses are over
    eventually("the jobs say it", lambda: three.cli("queue").count(why) == len(failed))
    for job in busy:
        three.cli("cancel", str(job))
    for job in failed:
        assert three.until(job, "COMPLETED").nodes in (("n1",), ("n3",))
    assert three.drained("n2").startswith("the starts of 3 jobs failed here within 10 min")
    three.says("prolog", "")
    three.resume("n2")
    assert three.until(three.submit("true", nodelist="n2"), "COMPLETED").run == 1


def test_one_user_s_failing_prologs_drain_one_node_at_most(three: Hooked) -> None:
    three.says("prolog", 'echo "no such project"; exit 7')
    for name in three.names:
        jobs = [three.submit("true", nodelist=name) for _ in range(4)]
        for job in jobs:
            why = f"{job} has failed on {name}"
            eventually(why, lambda job=job, name=name: three.ran(job) or three.drained(name))
    eventually("all that ran is given back", lambda: not any(map(three.drained, three.names)))
    three.cli("cancel", "--me", "--yes", check=False)
    three.says("prolog", "")
    assert three.until(three.submit("true"), "COMPLETED")
