"""The order of all waiting jobs at once, as `sprio` asks for it, is that of the details of each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent


def test_the_order_of_all_is_that_of_each_and_costs_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, round={"policy": "multifactor"})

    async def scene() -> None:
        async with Running(settings) as running:
            caller = running.caller()
            agent = ScriptedAgent("n1", running.target)
            await agent.start()
            await eventually(lambda: running.daemon.driver.committed.nodes)
            await caller.submit(job(gpus=4))
            await eventually(agent.running)
            jobs = await caller.submit(*(job(gpus=4, weight=1.0 / (k + 1)) for k in range(11)))

            async def ordered() -> Any:
                asked = c.ShowRequest(order_only=True)
                return (await caller.control.Show(asked, timeout=60)).order

            async def all_wait() -> bool:
                return len((await ordered()).jobs) == 11

            await eventually(all_wait)
            asked = c.ShowRequest(filter=c.Filter(jobs=jobs), why_order=True)
            details = (await caller.control.Show(asked, timeout=60)).jobs
            with monkeypatch.context() as patch:
                patch.setattr(running.daemon.driver, "read", None)  # else it is a failure
                order = await ordered()
            assert order.policy == "multifactor"
            values = {term.name: list(term.values) for term in order.terms}
            assert "total" in values
            assert {each.job.state for each in details} == {"PENDING"}
            for each in details:
                numbers = dict(each.order_numbers)
                place = list(order.jobs).index(each.job.job)
                assert (numbers.pop("policy"), numbers.pop("position")) == (
                    "multifactor",
                    str(place + 1),
                )
                for name, text in numbers.items():
                    assert float(text) == pytest.approx(values[name][place], abs=0.06)
            await agent.stop()

    asyncio.run(scene())
