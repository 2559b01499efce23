"""Gangs over several nodes start as one, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow


def test_every_node_of_a_gang_knows_its_rank(small: LocalCluster) -> None:
    job = small.submit(
        "echo $NODE_RANK $DLSCHED_NNODES $MASTER_ADDR:$MASTER_PORT",
        nodes="2",
        gpus_per_node="4",
        launch="node",
        output=f"{small.out}/%j.%n.out",
    )
    assert len(small.until(job, "COMPLETED").nodes) == 2
    lines = [(small.out / f"{job}.{rank}.out").read_text().split() for rank in (0, 1)]
    assert [line[:2] for line in lines] == [["0", "2"], ["1", "2"]]
    assert lines[0][2] == lines[1][2]


@pytest.fixture
def impatient() -> Iterator[LocalCluster]:
    """Two nodes, for which a gang does not wait long."""
    with LocalCluster(nodes=2, timing={"prepare_s": 6.0}) as running:
        yield running


def test_a_gang_that_fails_on_one_node_starts_nowhere(impatient: LocalCluster) -> None:
    """n2 cannot prepare: no member executes, and the job waits with a reason."""
    small = impatient
    marks = small.folder / "marks"
    marks.mkdir()
    small.kill("n2")
    small.start_agent("n2", DLSCHED_FAULTPOINT="agent-spawn-before")
    small.wait_until_up()
    job = small.submit(
        f"touch {marks}/$NODE_RANK; sleep 600", nodes="2", gpus_per_node="4", launch="node"
    )
    eventually("n2's agent has died at the spawn", lambda: small.processes["n2"].poll() is not None)
    eventually("the daemon gives up waiting", lambda: small.job(job).state == "COMPLETING")
    assert not list(marks.iterdir())
    small.processes.pop("n2")
    small.start_agent("n2")
    small.until(job, "RUNNING")
    eventually("both ran", lambda: len(list(marks.iterdir())) == 2)
    uncharged = small.job(job)
    assert (uncharged.failures, uncharged.preemptions) == (0, 0)
    small.cli("cancel", str(job))
    small.until(job, "CANCELLED")
