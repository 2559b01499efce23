"""Salus in live rounds: jobs of known memory take turns on the same GPUs."""

from __future__ import annotations

from typing import Any

import pytest

MEMORY = {"persistent_gib": "1", "ephemeral_gib": "1"}


@pytest.mark.parametrize(("gang", "shares"), [((2,), True), ((1, 1), False)])
def test_a_job_joins_only_gpus_that_lie_as_it_asked(
    live: Any, gang: tuple[int, ...], shares: bool
) -> None:
    lab = live.LiveLab((2, 2), parts={"scheduling": "salus"})
    for node in ("n1", "n2"):
        lab.live.nodes.describe(node, {"gpu_memory_gib": 16.0})
    lab.submit(1.0, 2, gang=(2,), gpu_share=0.5, extra=MEMORY)
    lab.submit(2.0, 2, gang=(2,))  # has its GPUs alone
    lab.round(10.0)
    joins = lab.submit(11.0, 2, gang=gang, gpu_share=0.5, extra=MEMORY)
    lab.round(20.0)
    assert len(lab.running()) == 2 + shares
    assert (joins in lab.running()) is shares
