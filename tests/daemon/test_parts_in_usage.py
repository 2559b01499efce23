"""Jobs that need parts of GPUs: quotas, usage and GPU-hours count the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches, refused
from .test_tenants import Operator, waits

pytestmark = pytest.mark.slow


async def usage(caller: Caller) -> Any:
    found = await caller.control.Usage(c.UsageRequest(by_user=True), timeout=60)
    [mine] = [each for each in found.usage if each.name == "ann"]
    return mine


def test_quotas_usage_and_gpu_hours_count_parts(tmp_path: Path, later: Any) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await root.set("quota", kind="user", name="ann", gpus=1, gpu_hours=100.0)
        halves = await caller.submit(*(job(gpus=1, share=0.5) for _ in range(3)))
        for number in halves[:2]:
            await reaches(caller, number, "RUNNING")
        reason = await waits(caller, halves[2], "QOSMaxGRESPerUser")
        assert reason.endswith("user ann has 1 of 1 GPU, needs 0.5")
        view = (await root.all("quota"))["ann"]
        assert (view.gpu_parts_now, view.gpus_now) == (1.0, 1)
        mine = await usage(caller)
        assert (mine.gpu_parts_now, mine.gpus_now, mine.pending) == (1.0, 1, 1)

        code, said = await refused(caller.submit(job(gpus=4, share=0.5)))
        assert (code, said.split(":")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, "QOSMaxGRESPerUser")
        [wide] = await caller.submit(job(gpus=2, share=0.5))  # one GPU in all
        later(3600.0)
        for number in halves[:2]:
            await ends(agent, number)
            await reaches(caller, number, "COMPLETED")
            assert (await caller.show(number)).job.gpu_s == pytest.approx(1800, abs=100)
        await reaches(caller, halves[2], "RUNNING")
        mine = await usage(caller)
        assert mine.gpu_s == pytest.approx(3600, abs=600), "two halves of an hour"
        await ends(agent, halves[2])
        await reaches(caller, wide, "RUNNING")
        assert (await usage(caller)).gpu_parts_now == 1.0
        limits = running.daemon.cluster.live.eligibility.tenant_limits
        await eventually(lambda: limits.used_hours.get(("user", "ann"), 0.0) >= 0.99)
        assert limits.used_hours["user", "ann"] < 1.5

    play(tmp_path, scene, gpus=4)
