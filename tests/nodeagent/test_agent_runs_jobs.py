"""Jobs from their submission to their end, through a real agent and real keepers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import TIMING, Work, alive, eventually, marked

from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import (
    ExitReason,
    LaunchMode,
    Limits,
    NodeName,
    Phase,
    StopReason,
    Told,
)

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
DUMP = b"""#!/bin/sh
env -0 >"$OUT/env.${DLSCHED_NODE}.${SLURM_PROCID}.new"
mv "$OUT/env.${DLSCHED_NODE}.${SLURM_PROCID}.new" "$OUT/env.${DLSCHED_NODE}.${SLURM_PROCID}"
"""


def environment(path: Path) -> dict[str, str]:
    eventually(path.exists, f"{path} written")
    words = path.read_bytes().rstrip(b"\0").split(b"\0")
    return dict(word.decode().split("=", 1) for word in words)


def names(agent: Any) -> list[bytes]:
    """What `ps` calls the processes of an agent."""
    found = []
    for pid in marked(str(agent.folder)):
        try:
            found.append(Path(f"/proc/{pid}/comm").read_bytes().strip())
        except OSError:
            continue
    return found


def run(leader: Any, work: Work, nodes: tuple[str, ...] = ("n1",), **request: Any) -> Any:
    job = leader.submit(work, **request)
    leader.place(job, nodes)
    return job


@pytest.mark.parametrize(
    ("command", "status", "code", "signal"),
    [
        ("exit 0", JobStatus.COMPLETED, 0, 0),
        ("exit 3", JobStatus.FAILED, 3, 0),
        ("kill -SEGV $$", JobStatus.FAILED, 0, 11),
    ],
)
def test_how_a_job_ends_is_kept(
    calm: Any, command: str, status: JobStatus, code: int, signal: int
) -> None:
    leader = calm.leader
    job = run(leader, Work(argv=("/bin/sh", "-c", command)))
    row = leader.wait(job)
    assert row.status is status
    record = leader.run_of(job).members["n1"].exit
    assert (record.code, record.signal) == (code, signal)
    agent = calm.agents["n1"]
    eventually(lambda: not agent.records(), "the record goes once it is acknowledged")
    eventually(lambda: not list((agent.run_dir / "jobs").iterdir()), "and so do the sockets")
    eventually(lambda: b"dls-1.1" not in b" ".join(names(agent)), "and the keeper")


def test_a_script_gets_arguments_environment_and_folder(calm: Any) -> None:
    leader = calm.leader
    folder = calm.folder / "work"
    folder.mkdir()
    script = b'#!/bin/sh -e\npwd\necho "$1|$2"\necho $MINE\necho err >&2\n'
    job = run(
        leader,
        Work(
            script=script,
            argv=("one", "two words"),
            directory=str(folder),
            output="o.%N.%n.%t.%%",
            error="e",
            environment={"MINE": "x", "DLSCHED_JOB_ID": "999", "PATH": os.environ["PATH"]},
        ),
    )
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert (folder / "o.n1.0.0.%").read_text() == f"{folder}\none|two words\nx\n"
    assert (folder / "e").read_text() == "err\n"


def test_the_environment_of_every_process(calm: Any) -> None:
    leader = calm.leader
    work = Work(
        script=DUMP,
        environment={"OUT": str(calm.folder), "DLSCHED_RUN": "77", "SLURM_JOB_ID": "1"},
        more={"array_job": 5, "array_task": 3, "array_count": 4, "partition": "main"},
    )
    job = run(leader, work, ("n1", "n2"), gang=(2, 1), mode=LaunchMode.GPU)
    assert leader.wait(job).status is JobStatus.COMPLETED
    found = [environment(calm.folder / f"env.{name}") for name in ("n1.0", "n1.1", "n2.2")]
    gpus = leader.ledger.nodes[NodeName("n1")].gpus
    assert [each["RANK"] for each in found] == ["0", "1", "2"]
    assert [each["LOCAL_RANK"] for each in found] == ["0", "1", "0"]
    assert {each["WORLD_SIZE"] for each in found} == {"3"}
    assert [each["LOCAL_WORLD_SIZE"] for each in found] == ["2", "2", "1"]
    assert [each["NODE_RANK"] for each in found] == ["0", "0", "1"]
    assert {each["DLSCHED_NODELIST"] for each in found} == {"n[1-2]"}
    assert {each["DLSCHED_GPUS"] for each in found} == {"3"}
    assert [each["DLSCHED_GPUS_ON_NODE"] for each in found] == ["2", "2", "1"]
    assert found[0]["CUDA_VISIBLE_DEVICES"] == ",".join(gpus[:2])
    assert {each["MASTER_ADDR"] for each in found} == {"127.0.0.1"}
    assert len({each["MASTER_PORT"] for each in found}) == 1
    assert {each["DLSCHED_RUN"] for each in found} == {"1"}
    assert {each["SLURM_JOB_ID"] for each in found} == {str(job)}
    assert [each["SLURM_PROCID"] for each in found] == ["0", "1", "2"]
    assert {each["SLURM_TASKS_PER_NODE"] for each in found} == {"2,1"}
    assert {each["DLSCHED_ARRAY_TASK_ID"] for each in found} == {"3"}
    assert {each["SLURM_ARRAY_TASK_COUNT"] for each in found} == {"4"}
    assert all(len(each["DLSCHED_CTL_SOCK"]) < 108 for each in found)


@pytest.mark.parametrize(
    ("chosen", "left"), [(None, b"said\n"), ("", b"")], ids=["by default", "switched off"]
)
def test_a_killed_python_program_has_lost_no_line_unless_it_buffers(
    calm: Any, chosen: str | None, left: bytes
) -> None:
    leader, output, flag = calm.leader, calm.folder / "out", calm.folder / "up"
    script = (
        f"#!{sys.executable}\nimport pathlib, time\nprint('said')\n"
        f"pathlib.Path('{flag}').touch()\ntime.sleep(1000)\n"
    )
    environment = {} if chosen is None else {"PYTHONUNBUFFERED": chosen}
    job = run(leader, Work(script=script.encode(), output=str(output), environment=environment))
    eventually(flag.exists)
    leader.cancel(job)
    assert leader.wait(job).status is JobStatus.CANCELLED
    assert output.read_bytes() == left


def test_the_environment_of_a_job_that_shares_a_gpu_has_its_part(calm: Any) -> None:
    leader, seen = calm.leader, []
    for share in (0.25, None):
        work = Work(script=DUMP, environment={"OUT": str(calm.folder)})
        job = run(leader, work, gpu_share=share)
        assert leader.wait(job).status is JobStatus.COMPLETED
        found = environment(calm.folder / "env.n1.0")
        names = ("DLSCHED_GPU_SHARE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        seen.append([found.get(name) for name in names])
    assert seen == [["0.25", "25"], [None, None]]


NONSENSE = """
import os, socket
rank = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
rank.connect(os.environ["DLSCHED_CTL_SOCK"])
rank.send(b'{"type":"hello","rank":0}')
rank.send(b'{"type":"step","step":1,"loss":NaN}')
rank.send(b'{"type":"step","step":1,"loss":1' + b"0" * 400 + b"}")
rank.send(b'{"type":"step","step":1' + b"0" * 40 + b"}")
rank.send(b'{"type":"step","step":7}')
other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
other.connect(os.environ["DLSCHED_CTL_SOCK"])
other.send(b'{"type":"hello","rank":0,"run_id":"of another job"}')
other.send(b'{"type":"step","step":9}')
"""


def test_impossible_messages_of_a_job_are_counted_and_it_runs_on(calm: Any) -> None:
    leader = calm.leader
    job = run(leader, Work(argv=(sys.executable, "-c", NONSENSE)))
    assert leader.wait(job).status is JobStatus.COMPLETED

    def told() -> bool:
        ignored = sum(report.ignored for report in leader.reports)
        steps = [report.step for report in leader.reports if report.HasField("step")]
        return (ignored, steps[-1:]) == (5, [7])

    eventually(told, "three messages and two of another run are ignored, one step is told")


def test_launch_mode_batch_runs_on_the_first_node_only(calm: Any) -> None:
    leader = calm.leader
    work = Work(script=DUMP, environment={"OUT": str(calm.folder)})
    job = run(leader, work, ("n1", "n2"), gang=(1, 1))
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert sorted(path.name for path in calm.folder.glob("env.*")) == ["env.n1.0"]
    eventually(lambda: not leader.held("n2"), "the other member is let go")


def test_a_failed_rank_ends_the_other_ranks_of_its_node(calm: Any) -> None:
    """Rank 0 leaves at TERM, rank 2 ignores it and is killed."""
    leader = calm.leader
    flag = calm.folder / "others"
    script = f"""#!/bin/bash
        trap 'echo $RANK >>{flag}.term; [ $RANK = 0 ] && exit 0' TERM
        touch {flag}.$RANK
        while [ $RANK != 1 ] || [ ! -e {flag}.0 ] || [ ! -e {flag}.2 ]; do sleep 0.02; done
        exit 5"""
    work = Work(script=script.encode())
    job = run(leader, work, gang=(3,), mode=LaunchMode.GPU, grace_s=0.5)
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 5
    assert {*Path(f"{flag}.term").read_text().split()} == {"0", "2"}
    assert not [each for each in marked(str(flag)) if alive(each)]


@pytest.mark.parametrize(
    ("work", "detail"),
    [
        (Work(argv=("true",), output="/nowhere/at/all"), "cannot open output /nowhere/at/all"),
        (Work(argv=("true",), directory="/nowhere"), "cannot enter working directory /nowhere"),
        (Work(argv=("no-such-program",)), "no-such-program: command not found"),
        (Work(argv=("/etc/passwd",)), "cannot execute /etc/passwd: Permission denied"),
        (Work(script=b"#!/no/such/shell\n"), "/no/such/shell: command not found"),
    ],
)
def test_a_job_that_cannot_start_fails_with_the_reason(calm: Any, work: Work, detail: str) -> None:
    leader = calm.leader
    job = run(leader, work)
    assert leader.wait(job).status is JobStatus.FAILED
    record = leader.run_of(job).members["n1"].exit
    assert record.reason is ExitReason.EXITED
    assert record.code in (126, 127)
    assert detail in record.detail


@pytest.mark.parametrize("kind", ["link", "fifo", "device", "folder"])
def test_output_goes_to_a_regular_file_only(calm: Any, kind: str) -> None:
    leader = calm.leader
    path = calm.folder / "out"
    target = calm.folder / "victim"
    target.write_text("mine")
    match kind:
        case "link":
            path.symlink_to(target)
        case "fifo":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "folder":
            path.mkdir()
    job = run(leader, Work(argv=("echo", "x"), output=str(path)))
    assert leader.wait(job).status is JobStatus.FAILED
    assert "cannot open output" in leader.run_of(job).members["n1"].exit.detail
    assert target.read_text() == "mine"


@ROOT
def test_a_job_is_its_user_and_opens_files_as_that_user(calm: Any) -> None:
    leader = calm.leader
    theirs = calm.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    mine = calm.folder / "mine"
    mine.mkdir(mode=0o700)
    owner = {"user": "ann", "uid": 12345}
    script = b"#!/bin/sh\nid -u; id -g; id -G; cat $0 | head -1\n"
    job = run(leader, Work(script=script, directory=str(theirs), output="out", **owner))
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert (theirs / "out").read_text() == "12345\n12345\n12345\n#!/bin/sh\n"
    assert (theirs / "out").stat().st_uid == 12345
    job = run(leader, Work(argv=("true",), output=str(mine / "out"), **owner))
    assert leader.wait(job).status is JobStatus.FAILED
    assert "Permission denied" in leader.run_of(job).members["n1"].exit.detail


@ROOT
def test_a_node_has_its_own_veto_on_users(calm: Any) -> None:
    leader = calm.leader
    job = leader.submit(Work(argv=("true",), user="nobody", uid=65534))
    run_id = leader.place(job, ("n1",))

    def end() -> Any:
        return leader.ledger.runs[run_id].members["n1"].exit

    record = eventually(end, "refused")
    assert record.reason is ExitReason.NOT_STARTED
    assert record.detail == "node n1 runs no jobs of user nobody (65534)"


def test_time_limit_with_a_warning_before(calm: Any) -> None:
    leader = calm.leader
    output = calm.folder / "out"
    script = (
        b'#!/bin/bash\n/bin/bash -c \'trap "echo warned" USR1; '
        b'trap "echo term; exit 143" TERM; echo ready; while :; do sleep 0.02; done\'\necho never\n'
    )
    job = run(
        leader,
        Work(script=script, output=str(output), more={"warn_signal": 10, "warn_before_s": 0.6}),
        limits=Limits(time_s=1.2),
    )
    assert leader.wait(job).status is JobStatus.TIMEOUT
    said = (
        output.read_text().splitlines()
    )  # bash adds what killed its `sleep`, where a signal met one
    assert [line for line in said if line in {"ready", "warned", "term", "never"}] == [
        "ready",
        "warned",
        "term",
    ]


def test_a_preempted_job_that_ignores_the_signal_is_killed_after_its_grace(calm: Any) -> None:
    """Fault row D5."""
    leader = calm.leader
    flag = calm.folder / "up"
    script = f"#!/bin/bash\ntrap '' TERM\n(trap '' TERM; touch {flag}; sleep 1000) & wait\n"
    job = run(leader, Work(script=script.encode()), grace_s=0.5)
    eventually(flag.exists)
    since = time.monotonic()
    leader.stop(job, StopReason.PREEMPT)
    leader.wait(job, JobStatus.PENDING)
    assert time.monotonic() - since > 0.4  # not before its grace has passed
    record = leader.run_of(job).members["n1"].exit
    assert (record.signal, record.stop) == (9, StopReason.PREEMPT)
    assert leader.job(job).preemptions == 1
    assert not [p for p in marked(str(flag)) if alive(p)]


SAYS = f"{sys.executable} -m dlsched.job finished"
LEAVES = """#!{python}
import pathlib, signal, sys, time
from dlsched.job import attach
signal.signal(signal.SIGTERM, lambda *_: print("term", flush=True))
with attach() as job:
    job.step()
print("ready", flush=True)
while not pathlib.Path("{go}").exists():
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("first", "status"),
    [("", JobStatus.PENDING), (SAYS, JobStatus.COMPLETED)],
    ids=["saves", "has said that it is done"],
)
def test_an_exit_with_0_after_term_is_success_only_for_a_job_that_said_so(
    calm: Any, first: str, status: JobStatus
) -> None:
    leader, flag = calm.leader, calm.folder / "up"
    script = (
        f"#!/bin/bash\ntrap 'exit 0' TERM\n{first}\ntouch {flag}\nwhile :; do sleep 0.02; done\n"
    )
    job = run(leader, Work(script=script.encode()), grace_s=20.0)
    eventually(flag.exists)
    leader.stop(job, StopReason.PREEMPT)
    leader.wait(job, status)
    record = leader.run_of(job).members["n1"].exit
    assert (record.code, record.stop) == (0, StopReason.PREEMPT)
    assert record.term_s >= 0
    assert record.told is (Told.FINISHED if first else None)


@pytest.mark.parametrize("stop", [StopReason.PREEMPT, StopReason.CANCEL], ids=lambda s: s.value)
def test_what_follows_a_finished_training_gets_term_for_a_cancel_only(
    calm: Any, stop: StopReason
) -> None:
    leader, output, go = calm.leader, calm.folder / "out", calm.folder / "go"
    script = LEAVES.format(python=sys.executable, go=go)
    job = run(leader, Work(script=script.encode(), output=str(output)), grace_s=20.0)
    eventually(lambda: output.exists() and "ready" in output.read_text())
    leader.stop(job, stop)
    if stop is StopReason.CANCEL:
        eventually(lambda: "term" in output.read_text())
    else:
        leader.wait_phase("n1", Phase.STOPPING)
    go.touch()
    leader.wait(job, JobStatus.COMPLETED)
    record = leader.run_of(job).members["n1"].exit
    assert (record.told, record.term_s is None) == (Told.FINISHED, stop is StopReason.PREEMPT)


def test_suspend_resume_and_cancel_while_suspended(calm: Any) -> None:
    leader = calm.leader
    count = calm.folder / "count"
    script = f"#!/bin/bash\nwhile :; do echo x >>{count}; sleep 0.01; done\n"
    job = run(leader, Work(script=script.encode()), grace_s=1000.0)
    eventually(lambda: count.exists() and count.stat().st_size > 10)
    leader.suspend(job)
    leader.wait_phase("n1", Phase.SUSPENDED)
    size = count.stat().st_size
    since = time.monotonic()
    while time.monotonic() - since < 0.2:
        assert count.stat().st_size == size
    leader.suspend(job, suspended=False)
    eventually(lambda: count.stat().st_size > size)
    leader.suspend(job)
    leader.wait_phase("n1", Phase.SUSPENDED)
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)  # at once: its grace is far longer than this waits


def test_one_signal_goes_to_those_that_handle_it(calm: Any) -> None:
    leader = calm.leader
    output = calm.folder / "out"
    script = (
        b"#!/bin/bash\nbash -c 'trap \"echo got\" USR2; echo up; while :; do sleep 0.02; done'\n"
    )
    job = leader.submit(Work(script=script, output=str(output)))
    run_id = leader.place(job, ("n1",))
    eventually(lambda: output.exists() and output.read_text() == "up\n")
    leader.signal("n1", run_id, 12)
    eventually(lambda: output.read_text() == "up\ngot\n")
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def test_processes_that_escape_go_with_their_job(calm: Any) -> None:
    """Fault row C20."""
    leader = calm.leader
    pids = calm.folder / "pids"
    script = (
        "import os,sys,time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        os.environ.clear(); open({str(pids)!r}, 'w').write('x')\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        f"while not os.path.exists({str(pids)!r}): time.sleep(0.01)\n"
        "print(os.path.getsize('/proc/self/cmdline'))\n"
    )
    work = Work(argv=("python3", "-c", script), environment={"PATH": os.environ["PATH"]})
    job = run(leader, work)
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert not [p for p in marked(str(pids)) if alive(p)]


def test_logs_are_bytes_and_shown_to_the_last(calm: Any) -> None:
    """Fault row C29."""
    leader = calm.leader
    output = calm.folder / "out"
    data = bytes(range(256)) * 64 + b"no newline at the end"
    script = (
        "import sys,time\n"
        "d = bytes(range(256)) * 64 + b'no newline at the end'\n"
        "for k in range(50):\n"
        "    sys.stdout.buffer.write(d); sys.stdout.flush(); time.sleep(0.005)\n"
    )
    work = Work(
        argv=("python3", "-c", script),
        output=str(output),
        environment={"PATH": os.environ["PATH"]},
    )
    job = leader.submit(work)
    run_id = leader.place(job, ("n1",))
    eventually(output.exists)
    followed = leader.output("n1", run_id, follow=True)
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert output.read_bytes() == data * 50
    assert followed == data * 50
    asked = {"path": str(output), "user": work.user, "uid": work.uid}
    eventually(lambda: not calm.agents["n1"].records())
    tail = leader.output("n1", run_id, tail_lines=1, **asked)
    assert tail == data[data.rindex(b"\n") + 1 :]


def _own_mib(process: Path) -> float:
    memory = (process / "smaps_rollup").read_text()
    own = sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+) kB", memory, re.MULTILINE))
    return own / 1024


def test_a_keeper_is_small_and_cheap(cluster: Any) -> None:
    leader = cluster.up("n1")
    agent = cluster.agents["n1"]
    go = cluster.folder / "go"
    job = leader.submit(Work(argv=("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done")))
    run_id = leader.place(job, ("n1",))
    leader.wait_phase("n1", Phase.RUNNING)
    keeper = Path(f"/proc/{agent.keeper(run_id)}")
    beside_zygote = _own_mib(keeper)
    agent.kill()  # so that the keeper stays after the end
    go.touch()
    eventually(lambda: list(agent.state_dir.glob("jobs/*/exit.json")))
    status = (keeper / "status").read_text()
    faults = int((keeper / "stat").read_text().rpartition(")")[2].split()[7])
    alone = _own_mib(keeper)
    print(f"keeper: {beside_zygote:.2f} MiB of its own, then {alone:.2f}, {faults} pages touched")
    assert beside_zygote <= 4.0  # all others are pages of the zygote, once on each node
    assert alone <= 13.0
    assert faults <= 1_800  # a Python that starts anew touches 1,930 before its first import
    assert status.split("Threads:")[1].split()[0] == "1"


def test_a_pipe_that_is_held_elsewhere_holds_up_no_end(calm: Any) -> None:
    leader, output, go = calm.leader, calm.folder / "out", calm.folder / "go"
    script = f"echo first; while [ ! -e {go} ]; do sleep 0.02; done; echo last"
    work = Work(argv=("sh", "-c", script), output=str(output), more={"label_output": True})
    job = leader.submit(work, gang=(2,), mode=LaunchMode.GPU)
    leader.place(job, ("n1",))
    eventually(lambda: output.exists() and output.read_bytes().count(b"first") == 2)
    held = [os.open(f"/proc/{pid}/fd/1", os.O_WRONLY) for pid in marked(str(go))]
    try:
        go.touch()
        assert leader.wait(job).status is JobStatus.COMPLETED
    finally:
        for each in held:
            os.close(each)
    assert len(held) >= 2
    wanted = [f"{rank}: {word}".encode() for rank in (0, 1) for word in ("first", "last")]
    assert sorted(output.read_bytes().splitlines()) == wanted


def test_two_agents_on_one_state_folder_are_refused(cluster: Any) -> None:
    cluster.up("n1")
    first = cluster.agents["n1"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dlsched.nodeagent", "--name", "n1"),
            *("--daemon", "127.0.0.1:1", "--insecure-loopback", "--fake-gpus", "1:v100"),
            *("--state-dir", str(first.state_dir), "--run-dir", str(first.run_dir)),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "another agent runs here" in done.stderr


def test_gangs_prepare_all_or_nothing(cluster: Any) -> None:
    """Fault row D1."""
    leader = cluster.up("n1", "n2")
    output = cluster.folder / "ran"
    script = f"#!/bin/sh\necho x >>{output}\nsleep 1000\n".encode()
    job = leader.submit(Work(script=script), gang=(1, 1), mode=LaunchMode.NODE)
    cluster.agents["n2"].state_dir.joinpath("jobs").rename(cluster.folder / "away")
    run_id = leader.place(job, ("n1", "n2"))
    leader.wait(job, JobStatus.PENDING)
    refused = leader.ledger.runs[run_id].members["n2"].exit
    assert refused.detail == "the run cannot be recorded on n2: No such file or directory"
    eventually(lambda: not leader.held("n1"), "the other member is torn down")
    assert leader.ledger.runs[run_id].members["n1"].exit.reason is ExitReason.NOT_STARTED
    assert not output.exists()
    (cluster.folder / "away").rename(cluster.agents["n2"].state_dir / "jobs")
    leader.place(job, ("n1", "n2"))
    leader.wait(job, JobStatus.RUNNING)
    eventually(lambda: output.exists() and output.read_text() == "x\nx\n")
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def test_a_gang_that_is_cancelled_while_it_prepares_starts_nowhere(cluster: Any) -> None:
    """Fault row D4."""
    leader = cluster.up("n1", "n2")
    output = cluster.folder / "ran"
    script = f"#!/bin/sh\necho x >>{output}\n".encode()
    job = leader.submit(Work(script=script), gang=(1, 1), mode=LaunchMode.NODE)
    os.kill(cluster.agents["n2"].process.pid, 19)  # its member cannot prepare
    leader.place(job, ("n1", "n2"))
    leader.wait_phase("n1", Phase.PREPARED)
    leader.cancel(job)
    os.kill(cluster.agents["n2"].process.pid, 18)
    leader.wait(job, JobStatus.CANCELLED)
    eventually(lambda: not leader.held("n1") and not leader.held("n2"))
    assert not output.exists()


@pytest.mark.slow
@pytest.mark.timing(replace(TIMING, prepare_s=5.0))
def test_prepared_members_give_up_by_themselves(cluster: Any) -> None:
    """Fault row D2: the daemon goes between prepare and release."""
    leader = cluster.up("n1", "n2")
    output = cluster.folder / "ran"
    script = f"#!/bin/sh\necho x >>{output}\n".encode()
    job = leader.submit(Work(script=script), gang=(1, 1), mode=LaunchMode.NODE)
    os.kill(cluster.agents["n2"].process.pid, 19)
    run_id = leader.place(job, ("n1", "n2"))
    leader.wait_phase("n1", Phase.PREPARED)
    leader.end()
    os.kill(cluster.agents["n2"].process.pid, 18)
    found = cluster.agents["n1"].state_dir / "jobs"
    eventually(lambda: list(found.glob("*/exit.json")), "n1 gives up")
    leader.begin()
    leader.wait(job, JobStatus.PENDING)
    record = leader.ledger.runs[run_id].members["n1"].exit
    assert (record.reason, record.detail) == (ExitReason.NOT_STARTED, "not released in time")
    assert not output.exists()
