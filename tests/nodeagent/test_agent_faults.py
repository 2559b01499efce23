"""What a node survives: dead agents, dead keepers, lost messages, full disks, stuck processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from scripted_leader import SHORT_LEASE, Work, alive, eventually, marked

from dlsched.protocol.ledger import JobStatus, NodeStatus
from dlsched.protocol.messages import ExitReason, Fence, LaunchMode, NodeName, Phase, StopReason
from dlsched.protocol.table import having

pytestmark = pytest.mark.slow

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts, namespaces")
FREEZER = Path("/sys/fs/cgroup/freezer")
PYTHON = {"PATH": os.environ["PATH"]}


def waiting(cluster: Any, command: str, name: str = "go", gpu: int = 0) -> tuple[Any, Path]:
    """A job that says that it is up and waits for a file; then it does as told."""
    go = cluster.folder / name
    up = cluster.folder / f"{name}.up"
    script = f"#!/bin/bash\necho up >>{up}\nwhile [ ! -e {go} ]; do sleep 0.02; done\n{command}\n"
    leader = cluster.leader
    job = leader.submit(Work(script=script.encode()))
    leader.place(job, ("n1",), gpu)
    eventually(up.exists, "the job is up")
    leader.wait_phase("n1", Phase.RUNNING)
    return job, go


def count(path: Path) -> int:
    return path.read_text().count("up")


@pytest.fixture
def small_disk(cluster: Any) -> Iterator[Path]:
    """A file system with 512 KiB."""
    place = cluster.folder / "small"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,mode=1777", "small", str(place)], check=True
    )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_jobs_run_on_while_the_agent_is_dead_and_are_adopted(cluster: Any) -> None:
    """Fault row C1."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, "exit 0")
    run_id = leader.run_of(job).key.run_id
    keeper = agent.keeper(run_id)
    agent.restart()
    incarnation = leader.ledger.nodes[NodeName("n1")].incarnation
    eventually(lambda: leader.ledger.nodes[NodeName("n1")].incarnation > incarnation)
    leader.wait_phase("n1", Phase.RUNNING)
    assert agent.keeper(run_id) == keeper
    assert alive(keeper)
    assert count(cluster.folder / "go.up") == 1
    go.touch()
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert not leader.ledger.orphans


@pytest.mark.parametrize(
    ("command", "code", "signal_"),
    [
        pytest.param("exit 0", 0, 0, marks=pytest.mark.exhaustive),
        ("exit 3", 3, 0),
        ("kill -SEGV $$", 0, 11),
    ],
)
def test_an_end_while_the_agent_is_dead_is_not_lost(
    cluster: Any, command: str, code: int, signal_: int
) -> None:
    """Fault row C4."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, command)
    agent.kill()
    go.touch()
    eventually(lambda: list(agent.state_dir.glob("jobs/*/exit.json")), "recorded by the keeper")
    agent.start()
    leader.wait(job)
    record = leader.run_of(job).members["n1"].exit
    assert (record.code, record.signal) == (code, signal_)
    eventually(lambda: not agent.records())


def test_a_run_that_an_older_database_wants_again_is_told_and_not_started(cluster: Any) -> None:
    """Fault row F8: its end was acknowledged, and nothing shows that the database is older."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, "exit 3")
    older, name = leader.ledger, NodeName("n1")
    go.touch()
    leader.wait(job)
    first = leader.run_of(job).members[name].exit
    eventually(lambda: not agent.records())
    agent.kill()
    leader.end()
    newest = leader.ledger
    node = replace(older.nodes[name], revision=newest.nodes[name].revision)
    leader.ledger = replace(older, epoch=newest.epoch, nodes=having(older.nodes, name, node))
    leader.begin()
    assert not leader.job(job).status.is_terminal
    agent.start()
    leader.wait(job)
    assert leader.run_of(job).members[name].exit == first
    assert leader.run_of(job).key.run == 1
    assert count(cluster.folder / "go.up") == 1


def test_an_end_while_the_agent_starts_is_not_lost(cluster: Any) -> None:
    """Fault row C4: the agent waits for one keeper while another one, which it knows, ends."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, "exit 3")
    silent, silent_go = waiting(cluster, "exit 0", "silent", 1)
    ending, waits = (agent.keeper(leader.run_of(each).key.run_id) for each in (job, silent))
    os.kill(waits, signal.SIGSTOP)
    agent.kill()
    agent.start()
    eventually(lambda: has_agent(ending), "the agent talks to the keeper")
    go.touch()
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 3
    os.kill(waits, signal.SIGCONT)
    silent_go.touch()
    assert leader.wait(silent).status is JobStatus.COMPLETED


def has_agent(keeper: int) -> bool:
    """Whether an agent has connected to a keeper's socket, which is named beside its listener."""
    names = [each.laddr for each in psutil.Process(keeper).net_connections("unix")]
    return sum("/keeper" in name for name in names) == 2


def test_an_end_while_agent_and_daemon_are_away_is_reported_later(cluster: Any) -> None:
    """Fault row C5: the end is delivered under the next term."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, "exit 7")
    leader.end()
    agent.kill()
    go.touch()
    eventually(lambda: list(agent.state_dir.glob("jobs/*/exit.json")))
    agent.start()
    eventually(lambda: "daemon-not-reached" in agent.log.read_text(), "it keeps trying")
    leader.begin()
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 7


@pytest.mark.slow
def test_no_job_is_stopped_while_the_daemon_is_away(cluster: Any) -> None:
    leader = cluster.up("n1")
    job, go = waiting(cluster, "exit 0")
    leader.end()
    agent = cluster.agents["n1"]
    eventually(lambda: "daemon-not-reached" in agent.log.read_text())
    leader.begin()
    leader.wait_phase("n1", Phase.RUNNING)
    assert count(cluster.folder / "go.up") == 1
    go.touch()
    assert leader.wait(job).status is JobStatus.COMPLETED


def test_lost_replies_change_nothing(cluster: Any) -> None:
    """Fault row C6."""
    leader = cluster.up("n1")
    job, go = waiting(cluster, "exit 4")
    leader.drop_syncs = 3
    go.touch()
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 4
    eventually(lambda: not cluster.agents["n1"].records())


def test_a_late_end_is_history_only(cluster: Any) -> None:
    """Fault row C7: run 1 is told after run 2 has begun."""
    leader = cluster.up("n1", "n2")
    job, go = waiting(cluster, "exit 9")
    first = leader.run_of(job).key.run_id
    os.kill(cluster.agents["n1"].process.pid, signal.SIGSTOP)
    leader.node_is_down("n1")
    leader.wait(job, JobStatus.PENDING)
    flag = cluster.folder / "second"
    leader.work[job] = Work(argv=("sh", "-c", f"touch {flag}; exec sleep 1000"))
    leader.place(job, ("n2",))
    eventually(flag.exists)
    go.touch()
    os.kill(cluster.agents["n1"].process.pid, signal.SIGCONT)
    eventually(lambda: not cluster.agents["n1"].records(), "told and acknowledged")
    assert leader.ledger.runs[first].members["n1"].exit.code == 9
    assert leader.job(job).status is JobStatus.RUNNING
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def test_a_job_ends_with_its_killed_keeper_and_the_end_is_named(cluster: Any) -> None:
    """Fault row C3."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    flag = cluster.folder / "escaped"
    script = (
        "import os,time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(flag)!r}, 'w').close(); time.sleep(1000)\n"
        "    os._exit(0)\n"
        "time.sleep(1000)\n"
    )
    job = leader.submit(Work(argv=("python3", "-c", script), environment=PYTHON))
    run_id = leader.place(job, ("n1",))
    eventually(flag.exists)
    before = marked(str(flag))
    assert len(before) >= 2
    os.kill(agent.keeper(run_id), signal.SIGKILL)
    leader.wait(job, JobStatus.PENDING)
    record = leader.run_of(job).members["n1"].exit
    assert record.reason is ExitReason.KEEPER_LOST
    assert not [pid for pid in before if alive(pid)]


def test_a_keeper_killed_after_its_record_loses_nothing(cluster: Any) -> None:
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, go = waiting(cluster, "exit 6")
    keeper = agent.keeper(leader.run_of(job).key.run_id)
    agent.kill()
    go.touch()
    eventually(lambda: list(agent.state_dir.glob("jobs/*/exit.json")))
    os.kill(keeper, signal.SIGKILL)
    agent.start()
    leader.wait(job)
    record = leader.run_of(job).members["n1"].exit
    assert (record.reason, record.code) == (ExitReason.EXITED, 6)


@pytest.mark.timing(SHORT_LEASE)
def test_a_paused_agent_under_a_lease_freezes_its_jobs(cluster: Any) -> None:
    """Fault row C13: the keeper's own clock counts the pause; a leader's lease ends the fence."""
    leader = cluster.up("n1")
    ticks = cluster.folder / "ticks"
    script = f"#!/bin/bash\nwhile :; do echo x >>{ticks}; sleep 0.02; done\n"
    job = leader.submit(Work(script=script.encode()), fence=Fence.LEASE)
    leader.place(job, ("n1",))
    eventually(lambda: ticks.exists() and ticks.stat().st_size > 10)
    agent = cluster.agents["n1"]
    os.kill(agent.process.pid, signal.SIGSTOP)

    def stands() -> bool:
        size = ticks.stat().st_size
        subprocess.run(["sleep", "0.3"], check=True)
        return ticks.stat().st_size == size

    eventually(stands, "frozen")
    os.kill(agent.process.pid, signal.SIGCONT)
    size = ticks.stat().st_size
    eventually(lambda: ticks.stat().st_size > size, "thawed by a leader's lease")
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


@ROOT
def test_a_full_state_disk_refuses_starts_and_keeps_records(cluster: Any, small_disk: Path) -> None:
    """Fault row C15."""
    agent = cluster.agent("n1", "--state-dir", str(small_disk / "state"))
    agent.state_dir = small_disk / "state"
    leader = cluster.leader
    leader.wait_node("n1")
    job, go = waiting(cluster, "exit 5")
    fill(small_disk)
    other = leader.submit(Work(argv=("true",)))
    run_id = leader.place(other, ("n1",), first=1)

    def problem() -> bool:
        told = leader.descriptions["n1"].problems
        return bool(told) and "No space left on device" in told[0]

    eventually(problem, "the node says what is wrong")
    since = time.monotonic()
    go.touch()
    eventually(lambda: list(agent.state_dir.glob("jobs/*/exit.json")), "into reserved blocks")
    eventually(lambda: time.monotonic() > since + 3.0)
    assert agent.log.read_text().count("cannot-store why=No space left") == 1  # tried each second
    (small_disk / "filler").unlink()
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 5
    eventually(lambda: leader.ledger.runs[run_id].members["n1"].is_over, "refused or run later")
    eventually(lambda: not leader.descriptions["n1"].problems)


@ROOT
@pytest.mark.slow
def test_a_full_log_disk_affects_only_its_job(cluster: Any, small_disk: Path) -> None:
    """Fault row C16."""
    leader = cluster.up("n1")
    script = b"#!/bin/bash\nhead -c 2000000 /dev/zero || exit 12\n"
    job = leader.submit(Work(script=script, output=str(small_disk / "out")))
    leader.place(job, ("n1",))
    leader.wait(job)
    assert leader.run_of(job).members["n1"].exit.code == 12
    other = leader.submit(Work(argv=("true",)))
    leader.place(other, ("n1",))
    assert leader.wait(other).status is JobStatus.COMPLETED


@ROOT
@pytest.mark.slow
@pytest.mark.skipif(not (FREEZER / "tasks").exists(), reason="needs the v1 freezer")
def test_a_process_that_cannot_be_killed_quarantines_its_gpus(cluster: Any) -> None:
    """Fault row C19; the v1 freezer holds a process against SIGKILL, as a dead mount would."""
    leader = cluster.up("n1")
    flag = cluster.folder / "up"
    job = leader.submit(Work(argv=("sh", "-c", f"touch {flag}; exec sleep 1000")))
    leader.place(job, ("n1",))
    eventually(flag.exists)
    mark = b"DLSCHED_RUN_ID=" + leader.run_of(job).key.run_id.encode()

    def only() -> int | None:
        found = [p for p in Path("/proc").iterdir() if p.name.isdigit() and mark in _environ(p)]
        return int(found[0].name) if len(found) == 1 else None

    pid = eventually(only)
    cage = FREEZER / f"dlsched-test-{os.getpid()}"
    cage.mkdir()
    try:
        (cage / "tasks").write_text(str(pid))
        (cage / "freezer.state").write_text("FROZEN")
        eventually(lambda: (cage / "freezer.state").read_text().strip() == "FROZEN")
        leader.cancel(job)
        gpu = leader.ledger.nodes[NodeName("n1")].gpus[0]
        node = lambda: leader.ledger.nodes[NodeName("n1")]  # noqa: E731
        eventually(lambda: node().quarantined == (gpu,), "quarantined")
        record = leader.run_of(job).members["n1"].exit
        assert record.reason is ExitReason.UNKILLABLE
        other = leader.submit(Work(argv=("true",)))
        leader.place(other, ("n1",), first=1)
        assert leader.wait(other).status is JobStatus.COMPLETED
    finally:
        (cage / "freezer.state").write_text("THAWED")
    eventually(lambda: node().quarantined == (), "cleared by itself")
    eventually(lambda: not (cage / "tasks").read_text())
    cage.rmdir()


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def test_a_record_of_an_earlier_boot_is_not_taken_for_a_live_run(cluster: Any) -> None:
    """Fault rows C9 and C28: another process may have the keeper's process id now."""
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    job, _ = waiting(cluster, "exit 0")
    keeper = agent.keeper(leader.run_of(job).key.run_id)
    agent.kill()
    (path,) = agent.state_dir.glob("jobs/*/run.json")
    text = path.read_text()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not alive(keeper))
    path.write_text(text.replace(f'"pid":{keeper}', f'"pid":{os.getpid()}'))
    agent.start()
    leader.wait(job, JobStatus.PENDING)
    assert leader.run_of(job).members["n1"].exit.reason is ExitReason.KEEPER_LOST


def test_a_fast_logger_over_a_restart_loses_no_byte(cluster: Any) -> None:
    """Promise P5."""
    leader = cluster.up("n1")
    output = cluster.folder / "log"
    script = (
        "import sys,time\n"
        "for k in range(30000):\n"
        "    sys.stdout.write(f'{k:06d} ' + 'x' * 90 + '\\n')\n"
        "    if k % 500 == 0: sys.stdout.flush(); time.sleep(0.01)\n"
    )
    work = Work(argv=("python3", "-c", script), output=str(output), environment=PYTHON)
    job = leader.submit(work)
    leader.place(job, ("n1",))
    eventually(lambda: output.exists() and output.stat().st_size > 10_000)
    cluster.agents["n1"].restart()
    assert leader.wait(job).status is JobStatus.COMPLETED
    expected = b"".join(f"{k:06d} ".encode() + b"x" * 90 + b"\n" for k in range(30000))
    assert output.read_bytes() == expected


def test_one_member_s_end_ends_the_gang_once(cluster: Any) -> None:
    """Fault row D3, by a keeper's death."""
    leader = cluster.up("n1", "n2")
    flags = [cluster.folder / name for name in ("n1.up", "n2.up")]
    script = f"#!/bin/sh\ntouch {cluster.folder}/$DLSCHED_NODE.up\nexec sleep 1000\n"
    job = leader.submit(Work(script=script.encode()), gang=(1, 1), mode=LaunchMode.NODE, retries=1)
    run_id = leader.place(job, ("n1", "n2"))
    eventually(lambda: all(flag.exists() for flag in flags))
    os.kill(cluster.agents["n1"].keeper(run_id), signal.SIGKILL)
    leader.wait(job, JobStatus.PENDING)
    run = leader.ledger.runs[run_id]
    assert run.members["n1"].exit.reason is ExitReason.KEEPER_LOST
    assert run.members["n2"].exit.stop is StopReason.PEER
    assert leader.job(job).runs == 1
    eventually(lambda: not leader.held("n2"))


@pytest.mark.slow
def test_a_node_that_was_confirmed_down_registers_anew(cluster: Any) -> None:
    leader: Any = cluster.up("n1")
    os.kill(cluster.agents["n1"].process.pid, signal.SIGSTOP)
    leader.node_is_down("n1")
    assert leader.ledger.nodes[NodeName("n1")].status is not NodeStatus.UP
    os.kill(cluster.agents["n1"].process.pid, signal.SIGCONT)
    eventually(lambda: leader.ledger.nodes[NodeName("n1")].status is NodeStatus.UP)
