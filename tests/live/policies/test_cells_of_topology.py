"""Cells that nothing describes: those of the links that the driver of a node reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.nvml_stub import COMPILER, build_stub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the driver's stand-in"),
]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A node of four GPUs, of which each two are linked, under HiveD's placement."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path)))
    (tmp_path / "facts").write_text("gpus 4\ndomain 0 2\n")
    monkeypatch.setenv("STUB_NVML", str(tmp_path / "facts"))
    with LocalCluster(nodes=1, gpus=[""], round={"placement": "hived"}) as running:
        yield running


def test_a_job_gets_gpus_that_the_driver_says_are_linked(cluster: LocalCluster) -> None:
    first = cluster.submit("exec sleep 600")
    cluster.until(first, "RUNNING")
    pair = cluster.submit("exec sleep 600", gpus="2")
    cluster.until(pair, "RUNNING")
    found = json.loads(cluster.cli("admin", "cells", "show", "--json"))
    (alone,), linked = (each["gpus"]["n1"] for each in found["jobs"])
    assert linked == ([2, 3] if alone < 2 else [0, 1])  # not the neighbour of the first job
    assert [each["type"] for each in found["owned"]] == ["h100-node"]
