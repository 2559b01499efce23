"""`--gres=gpu:a100:2,gpu:v100:2`: a node's own types, from the driver to the job's devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode
from tests.nvml_stub import COMPILER, build_stub

pytestmark = pytest.mark.slow
A100, V100 = (1, 3), (0, 2, 4, 5)  # of n1; n2 has V100 alone


@pytest.fixture
def login(tmp_path: Path) -> Iterator[LoginNode]:
    """A user's shell on a cluster whose first node has GPUs of two types, as its driver says."""
    if COMPILER is None:
        pytest.skip("no C compiler to build the driver's stand-in with")
    build_stub(tmp_path)
    named = [*(f"a100 {k}" for k in A100), *(f"v100 {k}" for k in V100)]
    (tmp_path / "facts").write_text("\n".join(["gpus 6", *named, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        patch.setenv("STUB_NVML", str(tmp_path / "facts"))
        with LocalCluster(nodes=2, gpus=["", "4:v100"]) as cluster:
            yield LoginNode(cluster)


def devices(*indices: int) -> str:
    """GPUs as a job sees them."""
    return ",".join(f"GPU-stub-{k}" for k in indices)


USED = "gpu:v100:2(IDX:0,2),gpu:a100:2(IDX:1,3)"


def test_a_script_with_two_types_gets_them_and_the_next_one_waits_for_them(
    login: LoginNode,
) -> None:
    cluster = login.cluster
    told = "gpu:v100:4,gpu:a100:2"
    assert login.typed("sinfo -h -N -n n1 -o '%N %G'").strip() == f"n1 {told}"

    first = login.submit("two_types.sh")
    assert cluster.until(first, "RUNNING").nodes == ("n1",)
    out = login.home / f"slurm-{first}.out"
    eventually("it has told all", lambda: out.exists() and "refused=" in out.read_text())
    mine = devices(0, 1, 2, 3)
    lines = out.read_text().splitlines()
    assert f"gpus={mine} asked=a100:2,v100:2 on_node=4" in lines
    assert f"step={mine}" in lines
    assert "a call cannot choose among a100:2,v100:2: give a number" in out.read_text()
    [shown] = json.loads(login.typed(f"dlsched show {first} --json"))["jobs"]
    assert shown["gpus_by_type"] == "a100:2,v100:2"
    assert (shown["gang"], shown["gpu_indices"]) == ([4], {"n1": [0, 1, 2, 3]})
    assert "4 (a100:2,v100:2)" in login.typed(f"dlsched show {first}")
    assert login.typed(f"dlsched queue -j {first} --noheader -o type").strip() == "a100:2,v100:2"
    asked = "gres:gpu:a100:2,gres:gpu:v100:2"
    assert login.typed(f"squeue -h -j {first} -o %b").strip() == asked
    assert f"TresPerNode={asked}\n" in login.typed(f"scontrol show job {first}")
    node = login.typed("scontrol -d show node n1")
    assert f"Gres={told}\n" in node
    used = login.typed("sinfo -h -N -n n1 -O GresUsed:60").strip()
    assert (used, f"GresUsed={used}\n" in node) == (USED, True), node

    # four V100 of n2 and two of n1 are free, but no A100
    wrap = "--wrap 'echo gpus=$CUDA_VISIBLE_DEVICES; exec sleep 600'"
    second = int(login.typed(f"sbatch --parsable --gres=gpu:a100:1,gpu:v100:1 {wrap}"))
    why = "Fragmented: needs 1 a100 and 1 v100 on 1 node"
    eventually("it is told why it waits", lambda: cluster.job(second).reason == why)
    login.typed(f"scancel {first}")
    cluster.until(second, "RUNNING")
    out = login.home / f"slurm-{second}.out"
    eventually("it sees them", lambda: out.exists() and "gpus=" in out.read_text())
    assert out.read_text() == f"gpus={devices(0, 1)}\n"
    login.typed(f"scancel {second}")
    cluster.until(second, "CANCELLED")

    # n1 alone has this type, so a job that names it alone gets it there
    for asked in ("--gres=gpu:a100:2", "-C a100 --gpus-per-node=2"):
        third = int(login.typed(f"sbatch --parsable {asked} {wrap}"))
        cluster.until(third, "RUNNING")
        out = login.home / f"slurm-{third}.out"
        eventually("it sees them", lambda out=out: out.exists() and "gpus=" in out.read_text())
        assert out.read_text() == f"gpus={devices(*A100)}\n"
        assert login.typed(f"squeue -h -j {third} -o %b").strip() == "gres:gpu:a100:2"
        login.typed(f"scancel {third}")
        cluster.until(third, "CANCELLED")

    tres = login.typed(f"sacct -X -n -P -j {first} -o AllocTRES").strip()
    assert tres == "billing=1,cpu=1,gres/gpu=4,gres/gpu:a100=2,gres/gpu:v100=2,node=1"
    trace = login.typed("dlsched history --export -").splitlines()
    assert any('"a100:2,v100:2"' in line for line in trace)

    for types, why in (
        ("a100:3,gpu:v100:1", "no node has 3 a100 and 1 v100; n1 has 2 a100 and 4 v100; n2 has 4"),
        ("h100:1,gpu:k80:1", "no node has 1 h100 and 1 k80; no node has any h100 or k80"),
    ):
        refused = login.run(f"sbatch --gres=gpu:{types} --wrap true")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert why in refused.stderr
    pair = login.run("sbatch -N 2 --gres=gpu:a100:1,gpu:v100:1 --wrap true")
    assert "needs 2 nodes with 1 a100 and 1 v100" in pair.stderr


def test_a_waiting_job_is_changed_to_a_type_that_only_nodes_of_several_have(
    login: LoginNode,
) -> None:
    cluster, wrap = login.cluster, "--wrap 'echo gpus=$CUDA_VISIBLE_DEVICES'"
    jobs = [
        int(login.typed(f"sbatch --parsable --hold {asked} {wrap}"))
        for asked in ("--gres=gpu:1", "--gpus=1")
    ]
    login.typed(f"scontrol update JobId={jobs[0]} Gres=gpu:a100:2")
    told = login.typed(f"dlsched update {jobs[1]} --gpus a100:2")
    assert "gpus by type none -> a100:2" in told
    for job in jobs:
        assert "TresPerNode=gres:gpu:a100:2\n" in login.typed(f"scontrol show job {job}")
        login.typed(f"scontrol release {job}")
        assert cluster.until(job, "COMPLETED").nodes == ("n1",)
        out = login.home / f"slurm-{job}.out"
        assert out.read_text() == f"gpus={devices(*A100)}\n"
    refused = login.run(f"scontrol update JobId={jobs[0]} Gres=gpu:a100:1,gpu:v100:1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Gres=gpu:a100:1,gpu:v100:1: several types cannot be changed" in refused.stderr
