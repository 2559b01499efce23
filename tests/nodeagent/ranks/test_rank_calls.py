"""`dlsched run` inside an allocation: ranks on the caller's node and on the others."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import TIMING, Work, eventually, marked

from dlsched.job.messages import INPUT_CHUNK, INPUT_WINDOW
from dlsched.nodeagent.ranks.rank_plan import CannotPlace, plan_ranks, ranks_per_node
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import GpuId, NodeName, Share

RUN = f"{sys.executable} -m dlsched.job.launch"


def shares(*gpus: int) -> tuple[Share, ...]:
    return tuple(
        Share(node=NodeName(f"n{k}"), gpus=tuple(GpuId(f"g{k}{i}") for i in range(count)))
        for k, count in enumerate(gpus)
    )


@pytest.mark.parametrize(
    ("gpus", "ntasks", "per_node", "expected"),
    [
        ((2, 2), 0, 0, [2, 2]),
        ((2, 0), 0, 0, [2, 1]),
        ((4, 4), 3, 0, [2, 1]),
        ((1, 4), 4, 0, [1, 3]),
        ((4, 4), 3, 2, [2, 1]),
        ((1, 1), 0, 3, [3, 3]),
        ((1, 1), 1, 3, [1, 0]),
    ],
)
def test_ranks_are_laid_out_block_by_block(
    gpus: tuple[int, ...], ntasks: int, per_node: int, expected: list[int]
) -> None:
    assert ranks_per_node(shares(*gpus), ntasks, per_node) == expected


def test_ranks_that_do_not_fit_are_refused_with_the_reason() -> None:
    with pytest.raises(CannotPlace, match="5 ranks for 4 GPUs"):
        ranks_per_node(shares(2, 2), 5, 0)
    with pytest.raises(CannotPlace, match="do not fit on 2 nodes with 1 each"):
        ranks_per_node(shares(2, 2), 3, 1)
    with pytest.raises(CannotPlace, match="2 ranks with 2 GPUs each: node n0 has 2"):
        plan_ranks(shares(2, 2), 0, 0, 2)
    assert plan_ranks(shares(4), 2, 0, 2)[0][1].gpus == ("g02", "g03")


def places(*gpus: int, ntasks: int, per_node: int = 0, **more: Any) -> list[str]:
    """Ranks and their GPUs on each node: `0:01` is rank 0 with GPUs 0 and 1."""
    found = plan_ranks(
        shares(*gpus), ntasks, per_node, more.pop("gpus_per_task", 0), overcommit=True, **more
    )
    return [
        " ".join(f"{one.rank}:{''.join(gpu[-1] for gpu in one.gpus)}" for one in here)
        for here in found
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, ["0:01 1:01", "2:01"]),
        ({"plane": 1}, ["0:01 2:01", "1:01"]),
        ({"ntasks": 6, "plane": 2}, ["0:01 1:01 4:01 5:01", "2:01 3:01"]),
        ({"ntasks": 4, "per_node": 2, "plane": 1}, ["0:01 2:01", "1:01 3:01"]),
        ({"gpus_per_task": 1}, ["0:0 1:1", "2:0"]),
        ({"tasks_per_gpu": 1}, ["0:0 1:1", "2:0"]),
        ({"ntasks": 8, "tasks_per_gpu": 1}, ["0:0 1:1 2:0 3:1", "4:0 5:1 6:0 7:1"]),
        ({"ntasks": 8, "tasks_per_gpu": 2}, ["0:0 1:0 2:1 3:1", "4:0 5:0 6:1 7:1"]),
        ({"gpu_masks": (2, 3)}, ["0:1 1:01", "2:1"]),
    ],
)
def test_ranks_are_spread_and_see_gpus_as_on_a_real_slurm(
    how: dict[str, Any], expected: list[str]
) -> None:
    assert places(2, 2, **{"ntasks": 3, **how}) == expected


def test_ranks_with_gpus_of_their_own_go_where_these_are() -> None:
    assert places(3, 1, ntasks=4, gpus_per_task=1) == ["0:0 1:1 2:2", "3:0"]
    with pytest.raises(CannotPlace, match="5 ranks with 1 GPU each: its nodes have: n0 3, n1 1"):
        places(3, 1, ntasks=5, gpus_per_task=1)
    with pytest.raises(CannotPlace, match="--gpu-bind: node n1 has 1 GPU here, which count from 0"):
        places(3, 1, ntasks=2, gpu_masks=(2,))


@pytest.mark.parametrize(
    ("ntasks", "per_node", "gpus_per_task"),
    [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 10**9, 0), (10**300, 0, 0), (0, 4096, 0)],
)
def test_numbers_that_no_call_has_cost_no_work(
    ntasks: int, per_node: int, gpus_per_task: int
) -> None:
    with pytest.raises(CannotPlace, match="0 to 4096 are possible in one call"):
        plan_ranks(shares(2, 2), ntasks, per_node, gpus_per_task)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"environment": {"X": "\udcff"}}, "ranks on other nodes: "),
        ({"argv": ["/bin/true", "\udcff"]}, "ranks on other nodes: "),
        ({"argv": ["\udcff"], "ntasks": 1}, "exited"),
        ({"cpus_per_task": 2**40}, "refused"),
        ({"per_node": 10**9}, "refused"),
        ({"ntasks": -1}, "refused"),
    ],
    ids=["environment", "argument", "program", "processors", "ranks", "below"],
)
def test_nothing_that_a_job_asks_for_ends_an_agent(
    cluster: Any, said: dict[str, Any], answer: str
) -> None:
    leader = cluster.up("n1", "n2")
    program = cluster.folder / "asks.py"
    program.write_text(ASKS)
    message = {"type": "run", "argv": ["/bin/true"], "working_directory": "/tmp", **said}
    words = shlex.join([sys.executable, str(program), json.dumps(message), answer])
    job, output = batch(cluster, f"exec {words}")
    assert leader.wait(job).status is JobStatus.COMPLETED, output.read_text()
    assert all(agent.alive for agent in cluster.agents.values())


# sends one message to the keeper, and looks for a text in the answers
ASKS = """
import base64, json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect(os.environ["DLSCHED_CTL_SOCK"])
    line.send(sys.argv[1].encode())
    heard = ""
    while packet := line.recv(200_000):
        heard += packet.decode()
        heard += base64.b64decode(json.loads(packet).get("data", "")).decode()
        if any(word in heard for word in ('"done"', '"refused"')):
            break
sys.exit(sys.argv[2] not in heard)
"""


def words_of(pid: int, what: str = "cmdline") -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def batch(cluster: Any, script: str, gang: tuple[int, ...] = (2, 2)) -> tuple[Any, Path]:
    """A job over nodes n1, n2, … and its output."""
    leader = cluster.leader
    output = cluster.folder / "out"
    work = Work(
        script=f"#!/bin/bash\n{script}\n".encode(),
        output=str(output),
        environment={"PATH": os.environ["PATH"], "MARK": str(cluster.folder)},
    )
    job = leader.submit(work, gang=gang)
    leader.place(job, tuple(f"n{k + 1}" for k in range(len(gang))))
    return job, output


def test_ranks_run_on_all_nodes(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    told = "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $DLSCHED_NODE $SLURM_PROCID"
    job, output = batch(cluster, f"{RUN} bash -c 'echo {told} $MARK $SLURM_TASKS_PER_NODE'")
    row = leader.wait(job)
    assert row.status is JobStatus.COMPLETED, output.read_text()
    assert sorted(output.read_text().splitlines()) == [
        f"0/4 0/2 0 n1 0 {cluster.folder} 2(x2)",
        f"1/4 1/2 0 n1 1 {cluster.folder} 2(x2)",
        f"2/4 0/2 1 n2 2 {cluster.folder} 2(x2)",
        f"3/4 1/2 1 n2 3 {cluster.folder} 2(x2)",
    ]


def test_much_output_of_another_node_arrives_whole(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    script = (
        f"{RUN} -n 2 bash -c '[ $RANK = 0 ] || head -c 5000000 /dev/zero | tr \"\\0\" x' | wc -c"
    )
    job, output = batch(cluster, script)
    assert leader.wait(job).status is JobStatus.COMPLETED, output.read_text()
    assert output.read_text().strip() == "5000000"


def test_every_rank_reads_a_copy_of_the_input_and_its_end(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    inner = "while read line; do echo $RANK $line; done; echo $RANK end"
    job, output = batch(cluster, f"printf 'a\nb\n' | {RUN} -l bash -c '{inner}'")
    assert leader.wait(job).status is JobStatus.COMPLETED, output.read_text()
    lines = output.read_text().splitlines()
    for rank in "0123":
        own = [line for line in lines if line.startswith(f"{rank}: ")]
        assert own == [f"{rank}: {rank} {said}" for said in ("a", "b", "end")]


def test_a_rank_that_ends_or_closes_its_input_does_not_hold_up_the_others(cluster: Any) -> None:
    """Rank 1 ends at once, rank 2 reads nothing and ends when it is told, rank 3 closes its input.

    Rank 0 tells rank 2, which holds up the input of all, after half of what may be on its way.
    """
    leader = cluster.up("n1", "n2")
    folder, size, half = cluster.folder, 4 * INPUT_WINDOW, INPUT_WINDOW // 2
    script = folder / "reads.sh"
    script.write_text(
        "case $RANK in\n"
        f"0) head -c {half} | wc -c; touch {folder}/half; wc -c; touch {folder}/all;;\n"
        "1) ;;\n"
        f"2) until [ -e {folder}/half ]; do sleep 0.02; done;;\n"
        f"3) exec <&-; until [ -e {folder}/all ]; do sleep 0.02; done;;\n"
        "esac\n"
    )
    job, output = batch(cluster, f"head -c {size} /dev/zero | {RUN} sh {script}")
    assert leader.wait(job).status is JobStatus.COMPLETED, output.read_text()
    assert output.read_text().split() == [str(half), str(size - half)]


@pytest.mark.slow
def test_a_large_input_is_never_held_whole(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    size = 40 * 1024 * 1024
    agents = cluster.agents.values()
    before = [most_bytes(agent.process.pid) for agent in agents]
    script = (
        f"head -c {size} /dev/urandom > {cluster.folder}/large\n"
        f"{RUN} cksum < {cluster.folder}/large; cksum < {cluster.folder}/large\n"
        f"touch {cluster.folder}/done; exec sleep 1000"
    )
    job, output = batch(cluster, script)
    eventually((cluster.folder / "done").exists)
    assert len(output.read_text().splitlines()) == 5
    assert len(set(output.read_text().splitlines())) == 1
    run_id = leader.run_of(job).key.run_id
    after = [most_bytes(agent.process.pid) for agent in agents]
    keepers = [most_bytes(agent.keeper(run_id)) for agent in agents]
    assert max(keepers) < size, "the program included"
    assert all(then - at_first < size // 2 for at_first, then in zip(before, after, strict=True))
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def most_bytes(pid: int) -> int:
    """The most memory that a process has had at once."""
    (line,) = [each for each in words_of(pid, "status").splitlines() if each.startswith(b"VmHWM")]
    return int(line.split()[1]) * 1024


def test_input_that_was_not_asked_for_is_refused(cluster: Any) -> None:
    leader = cluster.up("n1")
    program = cluster.folder / "sends.py"
    program.write_text(SENDS)
    job, output = batch(cluster, f"exec {sys.executable} {program}", gang=(2,))
    assert leader.wait(job).status is JobStatus.COMPLETED, output.read_text()


# starts two ranks that read nothing, and sends them more than they have room for
SENDS = f"""
import base64, json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
    line.connect(os.environ["DLSCHED_CTL_SOCK"])
    wanted = {{"type": "run", "argv": ["/bin/sleep", "1000"], "input_to": -1, "label": True}}
    socket.send_fds(line, [json.dumps(wanted).encode()], [0, 1, 2])
    part = {{"type": "input", "data": base64.b64encode(bytes({INPUT_CHUNK})).decode()}}
    for _ in range({INPUT_WINDOW // INPUT_CHUNK} + 8):
        line.send(json.dumps(part).encode())
    while b'"refused"' not in (packet := line.recv(200_000)):
        assert packet
"""


def test_the_caller_gets_the_code_of_the_rank_that_failed_and_other_ranks_are_ended(
    cluster: Any,
) -> None:
    """Of four ranks on two nodes, first one here fails, then one elsewhere."""
    leader = cluster.up("n1", "n2")
    inner = "[ $RANK = $FAILS ] && exit 7; exec sleep 1000"
    script = f"for FAILS in 1 2; do export FAILS; {RUN} bash -c '{inner}'; echo code $?; done"
    job, output = batch(cluster, script)
    assert leader.wait(job).status is JobStatus.COMPLETED
    told = output.read_text()
    for rank in range(4):
        node = 1 + rank // 2
        ended = f"dlsched: run: rank {rank} on n{node}: ended with the others\n"
        assert told.count(ended) == (1 if rank in (1, 2) else 2), told
    assert "rank 1 on n1: exit code 7" in told
    assert "rank 2 on n2: exit code 7" in told
    assert told.count("code 7\n") == 4, "each call has exited with it"


def test_signals_reach_every_rank(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    folder = cluster.folder
    inner = f'trap "exit 5" USR1; touch {folder}/up.$RANK; while :; do sleep 0.02; done'
    job, _ = batch(cluster, f"exec {RUN} -n 2 --kill-on-bad-exit 0 bash -c '{inner}'")
    eventually(lambda: (folder / "up.0").exists() and (folder / "up.1").exists())
    (caller,) = [pid for pid in marked(str(folder)) if b"dlsched.job.launch" in words_of(pid)]
    os.kill(caller, signal.SIGUSR1)
    assert leader.wait(job).status is JobStatus.FAILED
    assert leader.run_of(job).members["n1"].exit.code == 5


def test_ranks_end_when_their_caller_dies(cluster: Any) -> None:
    leader = cluster.up("n1", "n2")
    folder = cluster.folder
    inner = f"touch {folder}/up.$RANK; exec sleep 1000"
    script = f"{RUN} -n 2 bash -c '{inner}' &\n"
    script += (
        f"while [ ! -e {folder}/up.1 ]; do sleep 0.02; done; kill -9 %1; touch {folder}/gone\n"
    )
    script += "exec sleep 1000"
    job, _ = batch(cluster, script)
    eventually((folder / "gone").exists)

    def ranks() -> list[int]:
        return [
            pid
            for pid in marked(str(folder))
            if b"WORLD_SIZE=2" in words_of(pid, "environ").split(b"\0")
        ]

    eventually(lambda: not ranks(), "no rank is left")
    assert leader.job(job).status is JobStatus.RUNNING
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


# says each line that it reads and the end, then waits for a file and ends with a code of its rank
SAYS = """
while read line; do echo $RANK $line; done
echo $$ > $MARK/pid.$RANK.new; mv $MARK/pid.$RANK.new $MARK/pid.$RANK; echo $RANK end
until [ -e $MARK/go ]; do sleep 0.02; done
echo $RANK last; exit $(( $RANK * 7 ))
"""


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [("n1",), ("n2",), ("n1", "n2")])
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_call_over_several_nodes_outlives_agents(
    cluster: Any, restarted: tuple[str, ...], how: str
) -> None:
    """Input is given and ranks end while agents are away; nothing is lost and nothing repeated."""
    leader, folder = cluster.up("n1", "n2"), cluster.folder
    agents = [cluster.agents[name] for name in restarted]
    (folder / "says.sh").write_text(SAYS)
    os.mkfifo(folder / "in")
    script = f"{RUN} -n 2 sh {folder}/says.sh < {folder}/in; echo code $?"
    job, output = batch(cluster, script)
    lines: list[str] = []

    def until_said(*said: str) -> None:
        lines.extend(said)
        eventually(lambda: set(lines) <= set(output.read_text().splitlines()), " ".join(said))

    with (folder / "in").open("w", buffering=1) as given:
        print("before", file=given)
        until_said("0 before", "1 before")
        for each in agents:
            getattr(each, how)()
        print("meanwhile", file=given)
        until_said("0 meanwhile")
        for each in agents:
            each.start()
        until_said("1 meanwhile")
    until_said("0 end", "1 end")
    for each in agents:
        getattr(each, how)()
    pids = [int((folder / f"pid.{rank}").read_text()) for rank in range(2)]
    (folder / "go").touch()
    eventually(lambda: not any(words_of(pid) for pid in pids), "the ranks have ended")
    for each in agents:
        each.start()
    until_said("0 last", "1 last", "code 7")
    assert leader.wait(job).status is JobStatus.COMPLETED
    assert sorted(output.read_text().splitlines()) == sorted(
        [*lines, "dlsched: run: rank 1 on n2: exit code 7"]
    )


@pytest.mark.slow
@pytest.mark.timing(
    replace(TIMING, beat_s=0.3, reply_age_s=1.0, lease_s=2.0, kill_s=0.5, margin_s=5.7)
)
@pytest.mark.parametrize("away", ["n1", "n2"])
def test_a_call_over_several_nodes_ends_when_an_agent_stays_away_and_says_why(
    cluster: Any, away: str
) -> None:
    """Neither the call nor a rank is left, though the agent comes back later."""
    leader, folder = cluster.up("n1", "n2"), cluster.folder
    inner = f"echo $$ > {folder}/pid.$RANK.new; mv {folder}/pid.$RANK.new {folder}/pid.$RANK"
    script = f"{RUN} -n 2 bash -c '{inner}; echo up; exec sleep 1000'; echo code $?"
    job, output = batch(cluster, script)
    pids = [folder / f"pid.{rank}" for rank in range(2)]
    eventually(lambda: all(each.exists() for each in pids))
    eventually(lambda: output.read_text().count("up\n") == 2)
    agent = cluster.agents[away]
    agent.kill()
    eventually(lambda: "code 1\n" in output.read_text())
    eventually(lambda: not any(words_of(int(each.read_text())) for each in pids), "no rank is left")
    agent.start()
    assert leader.wait(job).status is JobStatus.COMPLETED
    whose = "the agent of the first node" if away == "n1" else "its agent"
    why = f"dlsched: run: node n2: its ranks end, because {whose} has been away for 8.2 s"
    assert [line.startswith(why) for line in output.read_text().splitlines()].count(True) == 1


@pytest.mark.slow
def test_ranks_elsewhere_end_with_their_caller_while_an_agent_is_away(cluster: Any) -> None:
    """As soon as it is back, long before an agent counts as away for too long."""
    leader, folder = cluster.up("n1", "n2"), cluster.folder
    inner = f"echo $$ > {folder}/pid.$RANK.new; mv {folder}/pid.$RANK.new {folder}/pid.$RANK"
    script = f"{RUN} -n 2 bash -c '{inner}; echo up; exec sleep 1000' & wait; exec sleep 1000"
    job, output = batch(cluster, script)
    eventually(lambda: output.exists() and output.read_text().count("up\n") == 2)
    pids = [int((folder / f"pid.{rank}").read_text()) for rank in range(2)]
    agent = cluster.agents["n1"]
    agent.kill()
    (caller,) = [pid for pid in marked(str(folder)) if b"dlsched.job.launch" in words_of(pid)]
    os.kill(caller, signal.SIGKILL)
    eventually(lambda: not words_of(pids[0]), "its own node's rank has ended")
    agent.start()
    eventually(lambda: not words_of(pids[1]), "the other has ended", within=50)
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def test_too_many_ranks_are_refused(cluster: Any) -> None:
    leader = cluster.up("n1")
    job, output = batch(cluster, f"{RUN} -n 3 true", gang=(2,))
    leader.wait(job)
    assert "3 ranks for 2 GPUs" in output.read_text()
