from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster, parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.sweep.checks import check_fits

NODES = [Node(name=f"n{k}", gpus=4) for k in (1, 2, 3)]


def vcs(*given):
    return Cluster(NODES, given)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (parse_cluster_spec("3x4"), None),
        (parse_cluster_spec("1x4"), "job A asks for 6 GPUs, the cluster has 4 "),
        (vcs(VirtualCluster(name="red", nodes=("n1", "n2"))), None),
        (
            vcs(VirtualCluster(name="red", nodes=("n1",))),
            "job A asks for 6 GPUs, vc red has 4 ",
        ),
        (
            vcs(VirtualCluster(name="blue", nodes=("n1", "n2"))),
            "job A asks for 6 GPUs, the nodes of no vc have 4 ",
        ),
        (vcs(VirtualCluster(name="red", gpus=5)), "job A asks for 6 GPUs, vc red has 5 "),
        (vcs(VirtualCluster(name="red", gpus=5, borrow=True)), None),
    ],
)
def test_a_gang_that_can_never_run_is_found(lab, cluster, message):
    trace = lab.trace([(0, 5.5, 1), (1, 1, 1)], vc=["red", "blue"])
    if message is None:
        check_fits(trace, cluster, Path("x.csv"))
        return
    with pytest.raises(BadInput) as refused:
        check_fits(trace, cluster, Path("x.csv"))
    assert str(refused.value).startswith(f"x.csv: {message}")
