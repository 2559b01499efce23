"""Spare nodes: no job starts there but one that has lost a node or a GPU, and that one at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> Iterator[LocalCluster]:
    """Two nodes of two GPUs, and a spare one."""
    nodes = [{"name": "n[1-2]", "gpus": 2}, {"name": "n3", "gpus": 2, "spare": True}]
    with LocalCluster(nodes=3, gpus="2:v100", tables={"nodes": nodes}) as running:
        yield running


def submitted(site: LocalCluster, *words: str) -> int:
    return int(site.cli("submit", "--parsable", *words, "--wrap", "sleep 600"))


def test_a_broken_node_of_a_gang_is_replaced_by_the_spare_one(site: LocalCluster) -> None:
    eventually("all were heard", lambda: site.node("n3").state == "spare")
    assert site.cli("nodes", "-o", "name,state", "n3").split()[-1] == "spare"
    refused = site.run("submit", "-N", "3", "--gpus-per-node", "2", "--wrap", "true")
    assert (refused.returncode, "the cluster has 2 nodes" in refused.stderr) == (1, True)
    gang = submitted(site, "-N", "2", "--gpus-per-node", "2")
    assert site.until(gang, "RUNNING").nodes == ("n1", "n2")
    other = submitted(site, "--gpus", "2")
    eventually("it waits", lambda: "Resources" in (site.job(other).reason or ""))
    assert not site.node("n3").jobs

    site.power_off("n1")
    site.confirm_down("n1")
    again = eventually("it runs again", lambda: site.job(gang).starts == 2 and site.job(gang))
    assert (sorted(site.until(gang, "RUNNING").nodes), again.failures) == (["n2", "n3"], 0)
    assert site.job(other).state == "PENDING"
    site.kill("daemon")
    site.start_daemon()
    eventually("the leader knows", lambda: site.node("n3").state == "full")
    assert sorted(site.job(gang).nodes) == ["n2", "n3"]

    site.cli("cancel", str(gang))
    assert site.until(other, "RUNNING").nodes == ("n2",)  # and not on the spare one, free again
    last = submitted(site, "--gpus", "1")
    eventually("it waits", lambda: "Resources" in (site.job(last).reason or ""))
    assert site.node("n3").state == "spare"
    site.start_agent("n1")
    assert site.until(last, "RUNNING").nodes == ("n1",)  # the node is back
    site.cli("cancel", str(other), str(last))
