"""What a keeper does for each job, counted: its zygote has done what is the same for all."""

from __future__ import annotations

import sys
import typing
from collections import Counter
from types import FrameType
from typing import Any

from dlsched.nodeagent.json_values import decoder
from dlsched.nodeagent.keeper import zygote
from dlsched.nodeagent.keeper.framing import frame
from dlsched.nodeagent.keeper.run_files import LeaseFile
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.protocol import messages as m

KEY = m.RunKey(m.JobId(7), m.RunNumber(2), m.RunId("5f0c"))
GPUS = tuple(m.GpuId(f"GPU-{k}") for k in range(8))
DESIRED = m.DesiredRun(
    key=KEY,
    want=m.Want.RUNNING,
    epoch=m.Epoch(3),
    boot_id=m.BootId("b1"),
    gpus=GPUS,
    layout=(m.Share(node=m.NodeName("n1"), gpus=GPUS),),
    mode=m.LaunchMode.BATCH,
)
STATUS = m.KeeperStatus(desired=DESIRED, phase=m.Phase.RUNNING)


def test_all_that_any_keeper_reads_is_known_before_it_is_forked() -> None:
    decoder.cache_clear()
    zygote.make_decoders()
    made = decoder.cache_info().misses
    for kind in (KeeperSpec, LeaseFile, *typing.get_args(m.Order)):
        decoder(kind)
    assert decoder.cache_info().misses == made > 0


def test_texts_and_numbers_of_a_message_cost_no_call() -> None:
    calls: Counter[str] = Counter()

    def count(frame_: FrameType, event: str, _argument: Any) -> None:
        calls[frame_.f_code.co_name] += event == "call"

    sys.setprofile(count)
    try:
        frame({"status": STATUS})
    finally:
        sys.setprofile(None)
    # the status, its phase, the run, its key, what is wanted, how it is launched, the fence, the
    # way to suspend it, its limits and its one share: neither GPUs nor any other text
    assert calls["plain"] == 10
