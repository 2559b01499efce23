"""Signals that reach a job: each rank gets each signal once, and nothing below it gets any."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAM = f"{sys.executable} {Path(__file__).with_name('signals_program.py')}"
TORCHRUN = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node 2"
# what a script executes, and on how many nodes; how many ranks that are
WAYS = {
    "alone": (PROGRAM, 1, 1),
    "in place of the script": (f"exec {PROGRAM}", 1, 1),
    "below a script with traps": (f"trap 'echo trap' USR1 TERM\n{PROGRAM}", 1, 1),
    "with workers": (f"{PROGRAM} workers", 1, 1),
    "in the background": (f"{PROGRAM} & wait", 1, 1),
    "srun": (f"srun -n 2 {PROGRAM}", 1, 2),
    "srun over two nodes": (f"srun -n 4 --ntasks-per-node=2 {PROGRAM}", 2, 4),
    "srun of a shell": (f"srun -n 2 sh -c '{PROGRAM}; true'", 1, 2),
    "two calls of srun": (f"srun -n 1 {PROGRAM} &\nsrun -n 1 {PROGRAM} & wait", 1, 2),
    "torchrun": (f"{TORCHRUN} {PROGRAM.partition(' ')[2]}", 1, 2),
}


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs; more urgent jobs preempt others."""
    classes = [
        {"name": "urgent", "priority": 20, "preempts": ["plain"]},
        {"name": "plain", "priority": 10, "default": True},
    ]
    policy = {"policy": "multifactor"}
    with LocalCluster(nodes=2, gpus="2:v100", round=policy, tables={"classes": classes}) as running:
        yield running


def ready(cluster: LocalCluster, job: int, ranks: int) -> None:
    """Wait until all ranks of a job handle signals."""
    eventually("it handles signals", lambda: cluster.output(job).count(" ready\n") == ranks)


def got(cluster: LocalCluster, job: int, name: str) -> Counter[str]:
    """How many lines tell of a signal, by rank."""
    lines = [line.split() for line in cluster.output(job).splitlines()]
    return Counter(line[0] for line in lines if line[1:] == [name])


@pytest.mark.parametrize("way", WAYS)
def test_each_rank_gets_each_signal_once(pair: LocalCluster, way: str) -> None:
    command, nodes, ranks = WAYS[way]
    job = pair.submit(
        command, nodes=str(nodes), gpus_per_node="2", launch="batch", grace="2s",
        signal="USR1@90", time="10",
    )  # fmt: skip
    ready(pair, job, ranks)

    def all_have(name: str) -> bool:
        return sum(got(pair, job, name).values()) >= ranks

    pair.cli("update", str(job), "--time", "91s")
    eventually("the warning comes", lambda: all_have("USR1"))
    pair.cli("cancel", "-s", "USR2", str(job))
    eventually("the user's signal comes", lambda: all_have("USR2"))
    pair.cli("cancel", str(job))
    pair.until(job, "CANCELLED")
    once = {"TERM": ranks, "USR1": ranks, "USR2": ranks}
    assert {name: sum(got(pair, job, name).values()) for name in once} == once, pair.output(job)


@pytest.mark.parametrize("srun", ["", "srun -n 2 "], ids=["script", "srun"])
def test_what_a_training_needs_for_its_last_save_gets_no_term_before_it_ends(
    pair: LocalCluster, srun: str
) -> None:
    job = pair.submit(f"{srun}{PROGRAM} workers", gpus="2", grace="60s")
    ready(pair, job, 2 if srun else 1)
    pair.cli("cancel", str(job))
    pair.until(job, "CANCELLED", within=30)  # its workers have not kept the GPUs for its grace
    said = Counter(line.partition(" ")[2] for line in pair.output(job).splitlines())
    ranks = said["ready"]
    assert (said["TERM"], said["saved batch batch"]) == (ranks, ranks), pair.output(job)


def test_a_rank_that_saves_long_is_not_killed_because_another_has_ended(
    pair: LocalCluster,
) -> None:
    gate, rank = pair.folder / "long", pair.folder / "rank.sh"
    rank.write_text(
        f"save() {{ while [ $RANK = 1 -a ! -e {gate} ]; do sleep 0.1; done; "
        "echo saved; exit 143; }\n"
        "trap save TERM\n"
        "echo $RANK ready; while :; do sleep 0.1; done\n"
    )
    script = f"srun -n 2 sh {rank}"
    job = pair.submit(script, gpus="2", grace="60s")
    ready(pair, job, 2)
    pair.cli("requeue", str(job))
    ended = re.compile(r"rank 0 on n\d: exit code 143")
    eventually("one has ended", lambda: ended.search(pair.output(job)))
    gate.touch()
    eventually("the other has saved", lambda: pair.output(job).count("saved\n") == 2)
    pair.cli("cancel", str(job))
    pair.until(job, "CANCELLED")


@pytest.mark.parametrize(
    ("signal", "site", "heard"),
    [
        ("P:USR1@60", False, {"USR1", "script"}),
        ("USR1@60", True, {"USR1", "script"}),
        ("PB:USR1@60", False, {"script"}),
        ("USR1@60", False, {"TERM"}),
    ],
)
def test_a_preempted_job_gets_its_own_signal_in_place_of_term_where_that_is_asked_for(
    pair: LocalCluster, signal: str, site: bool, heard: set[str]
) -> None:
    pair.sections["round"]["send_user_signal"] = site
    pair.write_config()
    pair.cli("admin", "reload")
    script = f"trap 'echo 0 script' USR1\n{PROGRAM} &\nwhile :; do wait; done"
    job = pair.submit(script, gpus="4", nodes="2", signal=signal, time="10", grace="3s")
    ready(pair, job, 1)
    urgent = pair.submit("true", gpus="4", nodes="2", priority_class="urgent")
    pair.until(urgent, "COMPLETED")
    eventually("it runs again", lambda: pair.output(job).count(" ready\n") == 2)
    lines = [line.split()[1] for line in pair.output(job).splitlines()]
    assert sorted(lines[1 : lines.index("ready", 1)]) == sorted(heard)
    assert pair.job(job).preemptions == 1
    pair.cli("cancel", str(job))
    pair.until(job, "CANCELLED")
