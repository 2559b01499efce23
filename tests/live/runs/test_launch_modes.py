"""Launch modes: which processes start on which node, and what each one knows of the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
TELL = "echo " + " ".join(f"${name}" for name in (*NAMES, "SLURM_PROCID", "CUDA_VISIBLE_DEVICES"))
RUN = f"{sys.executable} -m dlsched run"


@pytest.fixture(scope="module")
def pair() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield running


def told(pair: LocalCluster, script: str, **options: object) -> list[dict[str, str]]:
    """What the processes of a job over both nodes say, in the order of their ranks."""
    job = pair.submit(
        script, nodes="2", gpus_per_node="2", output=f"{pair.out}/%j.%n.%t.out", **options
    )
    pair.until(job, "COMPLETED")
    texts = [path.read_text() for path in pair.out.glob(f"{job}.*.out")]
    lines = [line.split() for text in texts for line in text.splitlines()]
    found = [dict(zip((*NAMES, "SLURM_PROCID", "gpus"), line, strict=True)) for line in lines]
    return sorted(found, key=lambda each: int(each["RANK"]))


def column(rows: list[dict[str, str]], name: str) -> list[int]:
    return [int(row[name]) for row in rows]


def test_a_batch_script_runs_once_on_the_first_node_and_sees_its_gpus(pair: LocalCluster) -> None:
    job = pair.submit("echo $CUDA_VISIBLE_DEVICES", nodes="2", gpus_per_node="2", launch="batch")
    pair.until(job, "COMPLETED")
    [gpus] = (pair.out / f"{job}.out").read_text().splitlines()
    assert len(gpus.split(",")) == 2


def test_with_one_rank_a_node_the_rank_is_the_node_rank(pair: LocalCluster) -> None:
    rows = told(pair, TELL, launch="node")
    assert column(rows, "RANK") == column(rows, "NODE_RANK") == column(rows, "GROUP_RANK") == [0, 1]
    assert column(rows, "SLURM_PROCID") == [0, 1]
    assert column(rows, "LOCAL_RANK") == [0, 0]
    assert column(rows, "WORLD_SIZE") == [2, 2]
    assert column(rows, "LOCAL_WORLD_SIZE") == [1, 1]
    assert [len(row["gpus"].split(",")) for row in rows] == [2, 2]


def test_with_one_rank_a_gpu_there_are_as_many_ranks_as_gpus(pair: LocalCluster) -> None:
    rows = told(pair, TELL, launch="gpu")
    assert column(rows, "RANK") == column(rows, "SLURM_PROCID") == [0, 1, 2, 3]
    assert column(rows, "NODE_RANK") == column(rows, "GROUP_RANK") == [0, 0, 1, 1]
    assert column(rows, "LOCAL_RANK") == [0, 1, 0, 1]
    assert column(rows, "WORLD_SIZE") == [4] * 4
    assert column(rows, "LOCAL_WORLD_SIZE") == [2] * 4
    assert len({row["gpus"] for row in rows}) >= 2  # of all that it can see, a rank takes its own


def test_ranks_inside_an_allocation_go_over_both_nodes(pair: LocalCluster) -> None:
    rows = told(pair, f"{RUN} -n 4 sh -c '{TELL}'", launch="batch")
    assert column(rows, "RANK") == column(rows, "SLURM_PROCID") == [0, 1, 2, 3]
    assert column(rows, "NODE_RANK") == [0, 0, 1, 1]
    assert column(rows, "LOCAL_RANK") == [0, 1, 0, 1]
    assert column(rows, "WORLD_SIZE") == [4] * 4
    assert column(rows, "LOCAL_WORLD_SIZE") == [2] * 4


def test_a_failing_rank_ends_the_others_and_gives_the_job_its_code(pair: LocalCluster) -> None:
    script = f"{RUN} -n 4 sh -c 'if [ $RANK = 3 ]; then exit 5; fi; exec sleep 600'"
    job = pair.submit(script, nodes="2", gpus_per_node="2")
    ended = pair.until(job, "FAILED")
    assert ended.exit_code != 0
    assert "rank 3 on n" in pair.output(job)
    assert "exit code 5" in pair.output(job)
