"""`show` names the rank that failed first and its error, of real trainings without the library."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode

PROGRAM = Path(__file__).with_name("gloo_program.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
RAISED = "ValueError: shard 17 is truncated (gloo_program.py:32)"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield running


def cause(cluster: LocalCluster, *words: str) -> tuple[str, list[str]]:
    """The line `failed` of a job that is typed so, and the job's nodes."""
    job = int(cluster.cli("submit", "--parsable", *words))
    cluster.until(job, "FAILED", within=300)

    def shown() -> str:
        lines = cluster.cli("show", str(job)).splitlines()
        return next((line.strip() for line in lines if line.startswith("  failed ")), "")

    line = eventually("show has a cause", shown).removeprefix("failed").strip()
    [known] = json.loads(cluster.cli("show", str(job), "--json"))["jobs"]
    return line, [*known["runs"][-1]["nodes"]]


@pytest.mark.parametrize("what", ["raise", "exit", "kill", "crash", "late"])
@pytest.mark.parametrize("output", ["%j.out", "%j.%t.out"])
def test_ranks_of_the_scheduler(cluster: LocalCluster, what: str, output: str) -> None:
    options = [
        "--launch",
        "gpu",
        "-N",
        "2",
        "--gpus-per-node",
        "1",
        "-o",
        f"{cluster.out}/{output}",
    ]
    line, nodes = cause(cluster, *options, "--", sys.executable, str(PROGRAM), what)
    said = {
        "exit": "exit 7",
        "kill": "signal 9: killed, often because memory is short",
        "crash": "signal 11",
    }.get(what, f"exit 1: {RAISED}")
    assert line == f"rank 1 on {nodes[1]}: {said}"


def test_ranks_of_one_node_that_fail_at_the_same_time(cluster: LocalCluster) -> None:
    options = ["--launch", "gpu", "--gpus", "2"]
    for _ in range(3):
        line, [node] = cause(cluster, *options, "--", sys.executable, str(PROGRAM), "raise")
        assert line == f"rank 1 on {node}: exit 1: {RAISED}"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raise", f"exit 1: {RAISED}"),
        ("exit", "exit 7"),
        ("kill", "signal 9: killed, often because memory is short"),
        ("crash", "signal 11"),
    ],
)
def test_ranks_of_torchrun(cluster: LocalCluster, what: str, said: str) -> None:
    line, [node] = cause(cluster, "--gpus", "2", "--", *TORCHRUN, str(PROGRAM), what)
    assert line == f"rank 1 on {node}: {said}"


def test_a_program_that_python_cannot_read(cluster: LocalCluster) -> None:
    program = cluster.folder / "unclosed.py"
    program.write_text("import torch\nx = (1,\ny = 2\n")
    line, [node] = cause(cluster, "--gpus", "2", "--", *TORCHRUN, str(program))
    assert re.match(rf"rank [01] on {node}: exit 1: SyntaxError: ", line)  # one was first
    assert "(unclosed.py:" in line


def test_ranks_of_torchrun_on_each_node(cluster: LocalCluster) -> None:
    launch = [
        "--launch",
        "node",
        "-N",
        "2",
        "--gpus-per-node",
        "1",
        "-o",
        f"{cluster.out}/%j.%n.out",
    ]
    torchrun = [sys.executable, "-m", "dlsched.job.torchrun", str(PROGRAM), "raise"]
    line, nodes = cause(cluster, *launch, "--", *torchrun)
    assert line == f"rank 1 on {nodes[1]}: exit 1: {RAISED}"


def test_ranks_of_a_script(cluster: LocalCluster) -> None:
    script = cluster.folder / "two.sh"
    words = f"dlsched run --ntasks-per-node 1 {sys.executable} {PROGRAM}"
    script.write_text(f"#!/bin/sh\n{words} $1\n")
    gang = ["-N", "2", "--gpus-per-node", "1"]
    for what, said in (("raise", RAISED), ("exit", "exit 7")):
        line, nodes = cause(cluster, *gang, str(script), what)
        assert line == f"rank 1 on {nodes[1]}: {said}"


def test_all_that_tell_a_reason_tell_the_cause_of_a_rank_that_ended_later(
    cluster: LocalCluster,
) -> None:
    gang = ["--launch", "gpu", "-N", "2", "--gpus-per-node", "1"]
    program = [sys.executable, str(PROGRAM), "cleanup"]
    line, nodes = cause(cluster, *gang, "--name", "cleanup", "--", *program)
    assert line == f"rank 1 on {nodes[1]}: {RAISED}"
    told = f"rank 0 on {nodes[0]}: exit 1: {line}"

    *_, listed = json.loads(cluster.cli("history", "--name", "cleanup", "--json"))["jobs"]
    job = listed["job_id"]
    [shown] = json.loads(cluster.cli("show", str(job), "--json"))["jobs"]
    assert listed["reason"] == shown["reason"] == told
    login = LoginNode(cluster)
    reason = login.typed(f"sacct -n -X -P -j {job} -o Reason").strip()
    assert reason == told
