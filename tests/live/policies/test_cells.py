"""HiveD's cells on a real daemon and real agents, typed on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

CELLS = """
[cell_types.pair]
child = "v100"
count = 2

[cell_types.node]
child = "pair"
count = 2
node = true

[[physical_cells]]
type = "node"
nodes = "n[1-2]"

[[physical_cells]]
type = "node"
address = "n3"
pinned = "fast"

[[vcs]]
name = "vision"
cells = [{ type = "node", count = 1 }]

[[vcs]]
name = "speech"
cells = [{ type = "node.pair", count = 1 }]
pinned = ["fast"]
"""


@pytest.fixture(scope="module")
def celled() -> Iterator[LocalCluster]:
    """A daemon with cells, and three agents of four GPUs."""
    with LocalCluster(nodes=3) as running:
        path = running.folder / "dlsched.toml"
        path.write_text(path.read_text() + CELLS)
        running.cli("admin", "reload")
        running.cli("admin", "set-policy", "fifo", "--placement", "hived")
        yield running


def submit(cluster: LocalCluster, *words: str) -> int:
    return int(cluster.cli("submit", "--parsable", *words, "--wrap", "sleep 600"))


def cells(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.cli("admin", "cells", "show", "--json"))
    assert found["schema"] == "dlsched.cells/1"
    return found


def test_a_virtual_cluster_has_its_cells_whatever_the_others_do(celled: LocalCluster) -> None:
    # an opportunistic job takes two idle nodes
    lent = submit(celled, "-A", "speech", "--priority", "-1", "--gpus", "8")
    celled.until(lent, "RUNNING")
    assert [each["kind"] for each in cells(celled)["jobs"]] == ["opportunistic"]

    # a guaranteed job gets its node at once, and the other one leaves
    mine = submit(celled, "-A", "vision", "--gpus", "4")
    first = celled.until(mine, "RUNNING")
    assert celled.job(lent).preemptions == 1

    # a pinned cell is that very node
    pinned = submit(celled, "-A", "speech", "--cell", "fast", "--gpus", "4")
    assert celled.until(pinned, "RUNNING").nodes == ("n3",)

    # what is beyond the cells of a virtual cluster waits, and says why
    more = submit(celled, "-A", "vision", "--gpus", "1")
    eventually(
        "the reason",
        lambda: "insufficient capacity in vc vision" in celled.job(more).reason,
    )

    # what its cells can never serve is refused
    never = submit(celled, "-A", "speech", "--gpus", "5")
    ended = celled.until(never, "FAILED", "CANCELLED", "REFUSED")
    assert "in vc speech, even while nothing runs" in ended.reason

    found = cells(celled)
    owned = {each["address"]: each for each in found["owned"]}
    assert owned["vision/0"]["jobs"] == [mine]
    assert owned["vision/0"]["nodes"] == list(first.nodes)
    assert (owned["speech/1"]["pinned"], owned["speech/1"]["jobs"]) == ("fast", [pinned])
    assert owned["speech/0"]["state"] == "free"
    text = celled.cli("admin", "cells", "show")
    assert "node (fast)" in text
    assert "in use" in text

    # a daemon that was killed knows which cell each job has
    celled.kill("daemon")
    celled.start_daemon()
    celled.wait_until_up()
    assert {each["address"]: each for each in cells(celled)["owned"]} == owned

    # a policy that chooses GPUs itself is refused when it is switched on
    refused = celled.run("admin", "set-policy", "pollux")
    assert refused.returncode == 1
    assert "policy pollux: it chooses GPUs itself, but virtual clusters own" in refused.stderr

    # a node that is down is hidden while healthy cells are left
    free = next(name for name in ("n1", "n2") if name not in first.nodes)
    celled.kill(free)
    celled.confirm_down(free)
    eventually("the bad node", lambda: [b["node"] for b in cells(celled)["bad"]] == [free])
    bad = cells(celled)["bad"][0]
    assert bad["why"] == "is away"
    assert bad["seen_by"] == ["speech"], "its pair has no healthy node left"
    assert f"bad       {free} is away; seen by speech" in celled.cli("admin", "cells", "show")
    pair = submit(celled, "-A", "speech", "--gpus", "1")
    eventually("why it waits", lambda: f"node {free}, which is bad" in celled.job(pair).reason)

    # with the node come its cells
    celled.start_agent(free)
    assert celled.until(pair, "RUNNING").nodes == (free,)
    celled.cli("cancel", *map(str, (lent, mine, pinned, more, pair)))


def test_a_cell_of_a_node_that_never_came_stops_no_other_one(celled: LocalCluster) -> None:
    path = celled.folder / "dlsched.toml"
    more = '[[physical_cells]]\ntype = "node"\naddress = "n9"\npinned = "far"\n'
    before = path.read_text()
    path.write_text(before.replace('["fast"]', '["fast", "far"]') + more)
    celled.cli("admin", "reload")
    near = submit(celled, "-A", "vision", "--gpus", "4")
    celled.until(near, "RUNNING")
    far = submit(celled, "-A", "speech", "--cell", "far", "--gpus", "4")
    assert [(b["node"], b["why"]) for b in cells(celled)["bad"]] == [("n9", "has not registered")]
    eventually("why it waits", lambda: "node n9, which is bad" in celled.job(far).reason)

    # a job whose node is in no cell any more runs on
    other = "n2" if celled.job(near).nodes == ("n1",) else "n1"
    fewer = before.replace('nodes = "n[1-2]"', f'nodes = "{other}"')
    path.write_text(fewer.replace('type = "node.pair", count = 1', 'type = "node.pair", count = 0'))
    celled.cli("admin", "reload")
    celled.cli("cancel", str(far))
    line = f"job       {near}: downgraded, runs, on GPUs of no cell"
    eventually("the job beside cells", lambda: line in celled.cli("admin", "cells", "show"))
    assert celled.job(near).state == "RUNNING"
    celled.cli("cancel", str(near))
    path.write_text(before)
    celled.cli("admin", "reload")


def test_other_cells_end_no_job(celled: LocalCluster) -> None:
    job = submit(celled, "-A", "vision", "--gpus", "4")
    celled.until(job, "RUNNING")
    path = celled.folder / "dlsched.toml"
    before = path.read_text()
    path.write_text(before.replace('type = "node", count = 1', 'type = "node", count = 3'))
    refused = celled.run("admin", "reload")
    assert refused.returncode != 0
    assert "own 3 cells of type node in node, 3 are there" not in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "[[vcs]] own 4 cells of type node in node, 3 are there" in refused.stderr

    # cells of GPUs that a node does not have
    for wrong, why in (
        (
            'child = "pair"\ncount = 3',
            "do not tile node n1: it has GPUs 0, 1, 2, 3, its cells have",
        ),
        ('child = "a100"\ncount = 2', "node n1 has GPUs of type v100, its cell type node"),
    ):
        table = wrong.replace("3", "2").replace("a100", "v100")
        assert table in before
        path.write_text(before.replace(table, wrong))
        refused = celled.run("admin", "reload")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert why in refused.stderr

    path.write_text(before.replace('type = "node", count = 1', 'type = "node.pair", count = 1'))
    celled.cli("admin", "reload")
    submit(celled, "-A", "vision", "--gpus", "1")  # has a round decided
    eventually(
        "the job without its cell",
        lambda: [e["kind"] for e in cells(celled)["jobs"] if e["job"] == job] == ["downgraded"],
    )
    assert celled.job(job).state == "RUNNING"
    assert celled.job(job).starts == 1
