"""Every place where agent or keeper make something durable or alive, as the place where they die.

For each: a job is run, the process is killed there, the agent is started again, and what comes of
it must be one of few things: the job ran once and its end is known, or nothing ran and it runs
later.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Work, eventually, marked

import dlsched.nodeagent
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import ExitReason
from dlsched.system import fault_points

SOURCES = Path(dlsched.nodeagent.__file__).parent
QUICK = {
    "agent-spawn-after",
    "agent-drop-half",
    "keeper-reserve-after",
    "keeper-forked",
    "keeper-exit-half",
}
AGENT = [f"{name}:{k}" if k > 1 else name for name in fault_points.AGENT for k in (1, 2)]
POINTS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in [*AGENT, *fault_points.KEEPER]
]
OVER = (JobStatus.COMPLETED, JobStatus.FAILED)


def test_every_fault_point_is_used() -> None:
    used = {
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r'fault_point\("([a-z-]+)"\)', path.read_text())
    }
    assert used == {
        *fault_points.AGENT,
        *fault_points.AGENT_FOR_A_LOST_KEEPER,
        *fault_points.KEEPER,
    }


def settle(cluster: Any, job: Any) -> None:
    """Restart what dies, place what is pending, until the job is over."""
    leader, agent = cluster.leader, cluster.agents["n1"]

    def over() -> bool:
        if not agent.alive:
            agent.start()
        row = leader.job(job)
        if row.status is JobStatus.PENDING and not leader.held("n1"):
            agent.restart()  # without the fault
            leader.wait_node("n1")
            eventually(lambda: leader.state.committed.nodes["n1"].status.value == "up")
            leader.place(job, ("n1",))
        return row.status in OVER

    eventually(over, f"over: {leader.job(job)}", within=60)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_at_any_point_a_job_runs_once_or_fails_with_a_reason(
    cluster: Any, point: str
) -> None:
    """Fault row C2, and C3 and C4 at every point."""
    ran = cluster.folder / "ran"
    agent = cluster.agent("n1", DLSCHED_FAULTPOINT=point)
    leader = cluster.leader
    eventually(lambda: "n1" in leader.addresses or not agent.alive)
    if not agent.alive:
        agent.start()
    leader.wait_node("n1")
    job = leader.submit(Work(argv=("sh", "-c", f"echo ran >>{ran}; exit 3")))
    leader.place(job, ("n1",))
    settle(cluster, job)
    ends = [
        (run.released, run.members["n1"].exit)
        for run in (leader.ledger.runs[r] for r in leader.ledger.runs_of[job])
    ]
    last = ends[-1][1]
    lost = last.reason is ExitReason.KEEPER_LOST
    assert lost or (last.reason, last.code) == (ExitReason.EXITED, 3)
    times = ran.read_text().count("ran") if ran.exists() else 0
    assert times <= 1
    assert times == 1 or lost
    assert all(end.reason is ExitReason.NOT_STARTED for _, end in ends[:-1])

    def clean() -> bool:
        if not agent.alive:
            agent.start()
        return not agent.records()

    eventually(clean, "acknowledged and dropped")
    agent.kill()
    eventually(lambda: not marked(str(cluster.folder)), "nothing is left behind")


@pytest.mark.slow
@pytest.mark.parametrize("point", fault_points.AGENT_FOR_A_LOST_KEEPER)
def test_an_agent_killed_while_it_writes_the_end_of_a_lost_keeper(cluster: Any, point: str) -> None:
    agent = cluster.agent("n1", DLSCHED_FAULTPOINT=point)
    leader = cluster.leader
    leader.wait_node("n1")
    flag = cluster.folder / "up"
    job = leader.submit(Work(argv=("sh", "-c", f"touch {flag}; exec sleep 1000")))
    run_id = leader.place(job, ("n1",))
    eventually(flag.exists)

    os.kill(agent.keeper(run_id), signal.SIGKILL)
    agent.wait_dead()
    agent.start()
    leader.wait(job, JobStatus.FAILED)
    assert leader.run_of(job).members["n1"].exit.reason is ExitReason.KEEPER_LOST
    eventually(lambda: not agent.records())
