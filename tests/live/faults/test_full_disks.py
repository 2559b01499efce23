"""Disks that fill up under a running cluster: users and operators read why where they look."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import TracebackType

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

FULL = "No space left on device"


class OnSmallDisk(LocalCluster):
    """One node, whose agent keeps its state on a disk of 400 KiB; jobs may write there, too."""

    def __init__(self) -> None:
        super().__init__(nodes=1)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=400k,mode=1777", "small", str(self.disk)]
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "-l", str(self.disk)], check=True)
        super().__exit__(kind, error, trace)

    def _agent_settings(self, name: str) -> dict[str, object]:
        return {**super()._agent_settings(name), "state_dir": str(self.disk / "state")}


@pytest.fixture
def small() -> Iterator[OnSmallDisk]:
    """The node, on which no job has started: its agent stores something at the first start."""
    with OnSmallDisk() as cluster:
        yield cluster


def test_why_a_job_failed_whose_output_has_filled_its_disk(small: OnSmallDisk) -> None:
    script = "yes | head -c 900000; exit 7"
    job = small.submit(script, output=f"{small.disk}/out")
    small.until(job, "FAILED")
    why = f"exit 7: error: {FULL}, where this output is written"
    eventually("history says it", lambda: why in small.cli("history", "--json"))
    assert why in small.cli("show", str(job))
    assert FULL in small.cli("logs", str(job), "-n", "1")


def test_why_nothing_starts_on_a_node_whose_agent_cannot_store(small: OnSmallDisk) -> None:
    filler = small.disk / "filler"
    subprocess.run(["dd", "if=/dev/zero", f"of={filler}"], capture_output=True, check=False)
    job = small.submit("true")
    why = f"n1: cannot store: {FULL}"
    eventually("queue says it", lambda: why in small.cli("queue", "-j", str(job)))
    assert why in small.cli("show", str(job))
    assert f"cannot store: {FULL}" in small.cli("nodes", "-R")
    filler.unlink()
    small.until(job, "COMPLETED")
    eventually("the node is well", lambda: FULL not in small.cli("nodes"))
