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
        *fault_points.KEEPER_WITH_HOOKS,
        *fault_points.AGENT_FOR_AN_EPILOG,
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

    eventually(over, f"over: {leader.job(job)}")


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
    last, before = ends[-1][1], [end.reason for _, end in ends[:-1]]
    assert (last.reason, last.code) == (ExitReason.EXITED, 3)
    assert set(before) <= {ExitReason.NOT_STARTED, ExitReason.KEEPER_LOST}
    lost = before.count(ExitReason.KEEPER_LOST)  # such a run is repeated
    assert 1 <= ran.read_text().count("ran") <= 1 + lost
    assert lost <= 1

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
    leader.wait(job, JobStatus.PENDING)
    assert leader.run_of(job).members["n1"].exit.reason is ExitReason.KEEPER_LOST
    eventually(lambda: not agent.records())


OF_HOOKS = [
    pytest.param(name, marks=() if name == "keeper-hook-started:2" else pytest.mark.slow)
    for name in (
        *(f"{name}{which}" for name in fault_points.KEEPER_WITH_HOOKS[:2] for which in ("", ":2")),
        *fault_points.KEEPER_WITH_HOOKS[2:],
        *("keeper-exit-before", "keeper-exit-after", "keeper-released-before", "keeper-executed"),
    )
]


@pytest.mark.parametrize("point", OF_HOOKS)
def test_after_a_kill_at_any_point_of_a_hook_the_job_ran_once_between_its_hooks(
    cluster: Any, point: str
) -> None:
    """Fault row C25: the second hook of a run is its epilog."""
    told = cluster.folder / "told"
    hook = cluster.folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$DLSCHED_HOOK $DLSCHED_RUN" >>{told}\n')
    hook.chmod(0o755)
    more = f'[hooks]\nprolog = "{hook}"\nprolog_limit_s = 10.0\nepilog = "{hook}"\n'
    agent = cluster.agent("n1", more=more, DLSCHED_FAULTPOINT=point)
    leader = cluster.leader
    leader.wait_node("n1")
    job = leader.submit(Work(argv=("sh", "-c", f"echo job $DLSCHED_RUN >>{told}; exit 3")))
    leader.place(job, ("n1",))
    settle(cluster, job)
    eventually(lambda: not agent.records(), "acknowledged and dropped")
    lines = told.read_text().split("\n")[:-1]
    runs = [leader.ledger.runs[run] for run in leader.ledger.runs_of[job]]
    lost = sum(run.members["n1"].exit.reason is ExitReason.KEEPER_LOST for run in runs)
    assert sum(line.startswith("job") for line in lines) <= 1 + lost  # such a run is repeated
    assert lost <= 1
    for run in runs:
        number = run.key.run
        mine = [line.split()[0] for line in lines if line.endswith(f" {number}")]
        assert mine[-1] == "epilog"  # however often it ran, it was the last
        assert mine.count("prolog") <= 1
        if "job" in mine:
            assert mine[:2] == ["prolog", "job"]
    last = leader.run_of(job).members["n1"].exit
    assert (last.reason, last.code) in ((ExitReason.EXITED, 3), (ExitReason.KEEPER_LOST, 0))


@pytest.mark.slow
@pytest.mark.parametrize("point", fault_points.AGENT_FOR_AN_EPILOG)
def test_an_agent_killed_in_the_epilog_of_a_lost_keeper_runs_it_again(
    cluster: Any, point: str
) -> None:
    told, hook = cluster.folder / "told", cluster.folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$DLSCHED_END" >>{told}\n')
    hook.chmod(0o755)
    agent = cluster.agent("n1", more=f'[hooks]\nepilog = "{hook}"\n', DLSCHED_FAULTPOINT=point)
    leader = cluster.leader
    leader.wait_node("n1")
    flag = cluster.folder / "up"
    job = leader.submit(Work(argv=("sh", "-c", f"touch {flag}; exec sleep 1000")))
    run_id = leader.place(job, ("n1",))
    eventually(flag.exists)
    os.kill(agent.keeper(run_id), signal.SIGKILL)
    agent.wait_dead()
    agent.start()
    leader.wait(job, JobStatus.PENDING)
    eventually(lambda: not agent.records())
    assert set(told.read_text().split()) == {"keeper-lost"}
