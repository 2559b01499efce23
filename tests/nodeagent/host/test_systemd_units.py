"""The properties of a run's unit."""

from __future__ import annotations

import pytest

from dlsched.nodeagent.host import systemd_units
from dlsched.protocol import messages as m


@pytest.mark.parametrize(
    ("asked", "given"),
    [(4 << 20, 64 << 20), (64 << 20, 64 << 20), (1 << 30, 1 << 30), (None, None)],
)
def test_a_unit_has_memory_for_its_keeper_however_little_its_job_asks_for(
    asked: int | None, given: int | None
) -> None:
    desired = m.DesiredRun(
        key=m.RunKey(m.JobId(1), m.RunNumber(1), m.RunId("1-a")),
        want=m.Want.RUNNING,
        epoch=m.Epoch(1),
        boot_id=m.BootId("b"),
        gpus=(),
        layout=(m.Share(node=m.NodeName("n1"), gpus=()),),
        limits=m.Limits(memory_bytes=asked),
    )
    found = systemd_units.properties(desired, records="/r", allowed=(), oom_score_adj=0)
    memory = [int(each.split("=")[1]) for each in found if each.startswith("MemoryMax=")]
    assert memory == ([] if given is None else [given])
