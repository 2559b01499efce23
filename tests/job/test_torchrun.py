"""The options that `python -m dlsched.job.torchrun` fills in."""

from __future__ import annotations

import pytest

from dlsched.job.errors import JobError
from dlsched.job.torchrun import options

JOB = {"DLSCHED_JOB_ID": "7", "DLSCHED_GPUS_ON_NODE": "4"}
RANK = {"NODE_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "2900", "DLSCHED_NNODES": "2"}


def test_without_a_scheduler_all_options_are_the_users() -> None:
    assert options({}) == []


def test_started_on_each_node_it_knows_the_others() -> None:
    found = options(JOB | RANK | {"RANK": "1", "WORLD_SIZE": "2"})
    assert found == [
        *("--nnodes=2", "--nproc-per-node=4", "--node-rank=1"),
        *("--master-addr=n1", "--master-port=2900"),
    ]


def test_a_batch_script_on_one_node_needs_no_others() -> None:
    assert options(JOB | {"DLSCHED_NNODES": "1"}) == ["--standalone", "--nproc-per-node=4"]


def test_a_batch_script_on_several_nodes_is_refused_with_what_is_right() -> None:
    with pytest.raises(JobError, match=r"job has 3 nodes.*--launch node.*dlsched run"):
        options(JOB | {"DLSCHED_NNODES": "3", "MASTER_PORT": "2900"})  # its user has set it
