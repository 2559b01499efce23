"""The stacks of a run's processes: by py-spy, of the node or the job, else by faulthandler."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Cluster, Work, eventually

from dlsched.job.messages import STACKS_SIGNAL
from dlsched.nodeagent.keeper.stacks import LONGEST
from dlsched.protocol.messages import LaunchMode

pytestmark = pytest.mark.slow

PY_SPY = """#!/bin/sh
test "$1 $2 $3" = "dump --nonblocking --pid" || exit 2
case "{mode}" in
fails) echo "Error: Permission Denied"; echo "more"; exit 1 ;;
hangs) exec sleep 1000 ;;
floods) head -c 100000000 /dev/zero | tr '\\0' x ;;
*) echo "Process $4 by {mode}, $WHOSE" ;;
esac
"""
JOB = """
import multiprocessing, os, time
from dlsched.job import attach

def read_batch():
    time.sleep(1000)

with attach():
    loader = multiprocessing.get_context("fork").Process(target=read_batch)
    if {loads}:
        loader.start()
    open({ready!r}, "w").write(f"{{os.getpid()}} {{loader.pid or 0}}")
    read_batch()
"""


def without_py_spy() -> str:
    """A PATH in which no py-spy is found."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(each for each in folders if not Path(each, "py-spy").exists())


def py_spy(folder: Path, mode: str) -> str:
    """A PATH that has a py-spy of this kind."""
    place = folder / f"bin-{mode}"
    place.mkdir()
    program = place / "py-spy"
    program.write_text(PY_SPY.format(mode=mode))
    program.chmod(0o755)
    return f"{place}{os.pathsep}{without_py_spy()}"


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """One node without py-spy."""
    made = Cluster()
    made.agent("n1", PATH=without_py_spy())
    made.leader.wait_node("n1")
    yield made
    made.close()


def stacks(cluster: Cluster, path: str, *, loads: bool = True) -> tuple[str, list[int]]:
    """What is reported of a rank with this PATH, and its process id and that of its data loader."""
    leader = cluster.leader
    ready = cluster.folder / f"ready-{len(leader.work)}"
    argv = (sys.executable, "-c", JOB.format(ready=str(ready), loads=loads))
    work = Work(argv=argv, environment={"PATH": path, "WHOSE": "the job's"})
    job = leader.submit(work, mode=LaunchMode.GPU, grace_s=0.0)
    run = leader.place(job, ("n1",))
    eventually(lambda: ready.exists() and len(ready.read_text().split()) == 2, "the job works")
    leader.signal("n1", run, STACKS_SIGNAL)

    def told() -> list[str]:
        return [each.stacks for each in leader.reports if each.key.run_id == run and each.stacks]

    [text] = eventually(told, "stacks are reported")
    leader.cancel(job)
    leader.wait(job)
    return text, [int(each) for each in ready.read_text().split()]


def test_a_py_spy_of_the_job_reads_the_rank_and_its_children(node: Cluster) -> None:
    text, (rank, loader) = stacks(node, py_spy(node.folder, "one"))
    assert text == f"Process {rank} by one, the job's\n\nProcess {loader} by one, the job's"


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("fails", "(py-spy: Error: Permission Denied)\n"),
        ("hangs", "(py-spy: it takes too long)\n"),
        ("none", ""),
    ],
)
def test_a_rank_that_py_spy_cannot_read_writes_its_stacks(
    node: Cluster, mode: str, why: str
) -> None:
    path = without_py_spy() if mode == "none" else py_spy(node.folder, mode)
    text, _ = stacks(node, path, loads=False)
    assert text.startswith(f"{why}Current thread")
    assert "in read_batch" in text


def test_the_output_of_a_py_spy_is_bounded(node: Cluster) -> None:
    text, _ = stacks(node, py_spy(node.folder, "floods"))
    assert text == "x" * LONGEST


def test_a_py_spy_of_the_node_comes_first_and_knows_nothing_of_the_job(cluster: Any) -> None:
    cluster.agent("n1", PATH=py_spy(cluster.folder, "node"))
    cluster.leader.wait_node("n1")
    text, (rank, loader) = stacks(cluster, py_spy(cluster.folder, "another"))
    assert text == f"Process {rank} by node,\n\nProcess {loader} by node,"


@pytest.mark.skipif(not shutil.which("py-spy"), reason="py-spy is not installed (pip install it)")
def test_the_real_py_spy_names_the_functions(node: Cluster) -> None:
    text, (rank, loader) = stacks(node, os.environ["PATH"])
    own, of_loader = text.split(f"Process {loader}:")
    assert own.startswith(f"Process {rank}:")
    assert "read_batch" in own
    assert "read_batch" in of_loader
