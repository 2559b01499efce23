"""Features of nodes in a cluster file, and constraints in a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.errors import BadInput
from simulate.clusters.cluster_files import read_cluster_file

FEATURED = Cluster(
    [
        Node(name="n1", gpus=4, gpu_type="a100", features=("ib", "NVLink")),
        Node(name="n2", gpus=4, gpu_type="a100"),
        Node(name="n3", gpus=4, gpu_type="v100", features=("ib",)),
    ]
)


def nodes_of(lab: Any, constraints: list[str], **more: Any) -> list[float]:
    jobs = [(0, 4, 100)] * len(constraints)
    trace = lab.trace(jobs, constraint=constraints)
    result = lab.run(trace, "first-fit", cluster=FEATURED, **more)
    return [span[0] for span in lab.spans(result).values()]


def test_jobs_run_where_the_nodes_have_what_they_ask_for(lab: Any) -> None:
    assert nodes_of(lab, ["a100&nvlink", "nvlink", "ib"]) == [0, 100, 0]
    assert nodes_of(lab, ["v100|nvlink", "ib", "", "ib&a100"]) == [0, 0, 0, 100]


def test_a_job_for_which_no_node_will_do_is_refused(lab: Any) -> None:
    trace = lab.trace([(0, 4, 100)] * 2, constraint=["ib", "v100&nvlink"])
    jobs = lab.run(trace, "first-fit", cluster=FEATURED).jobs
    assert jobs.status.tolist() == ["completed", "refused"]
    assert "the cluster has 0 with nvlink&v100" in jobs.reason[1]
    with pytest.raises(BadInput, match="job A: constraint"):
        nodes_of(lab, ["ib&"])


def test_a_cluster_file_has_features(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[nodes]]\ncount = 2\ngpus = 4\nfeatures = ["ib", "nvlink"]\n')
    assert {node.features for node in read_cluster_file(path).nodes} == {("ib", "nvlink")}
    path.write_text("[[nodes]]\ngpus = 4\nfeatures = 3\n")
    with pytest.raises(BadInput, match="features must be a list of names"):
        read_cluster_file(path)
