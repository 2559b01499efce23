"""What a cluster could ever give to a job, and how it is told."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from .cluster_of_tests import Running, eventually, settings_of
from .scripted_agent import ScriptedAgent


def test_nodes_are_in_the_order_of_their_names_whichever_came_first(tmp_path: Path) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as ended:
            running = await ended.enter_async_context(Running(settings_of(tmp_path)))
            driver = running.daemon.driver
            for name in ("n10", "n2", "n1"):
                await ended.enter_async_context(ScriptedAgent(name, running.target))
                await eventually(lambda name=name: name in driver.committed.nodes)
            assert list(running.daemon.cluster.capacity().hosts) == ["n1", "n2", "n10"]

    asyncio.run(whole())
