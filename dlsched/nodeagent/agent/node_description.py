"""The description of a node that its agent sends beside its syncs: facts and state of the GPUs."""

from __future__ import annotations

import asyncio
import os

from dlsched.nodeagent.agent.agent_driver import AgentDriver
from dlsched.nodeagent.host.launchers import Launcher
from dlsched.rpc.v1 import node_pb2

EVERY_BEATS = 4


def node_facts(driver: AgentDriver, launcher: Launcher, address: str) -> node_pb2.NodeFacts:
    """Return what does not change while the agent runs."""
    inventory = driver.gpus.inventory
    return node_pb2.NodeFacts(
        address=address,
        cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        launcher=launcher.name,
        capabilities=launcher.capabilities,
        driver=inventory.driver,
        gpus=[
            node_pb2.GpuFacts(
                uuid=gpu.uuid,
                index=gpu.index,
                type=gpu.type,
                memory_bytes=gpu.memory_bytes,
                numa_node=gpu.numa_node,
                linked=gpu.linked,
            )
            for gpu in inventory.gpus
        ],
    )


def gpu_uses(driver: AgentDriver) -> list[node_pb2.GpuUse]:
    """Return how busy, how full and how healthy each GPU is now."""
    found = []
    for uuid, state in driver.gpus.states.items():
        use = node_pb2.GpuUse(
            uuid=uuid,
            problem=driver.gpus.why.get(uuid, "") or driver.gpus.foreign.get(uuid, ""),
            foreign=uuid in driver.gpus.foreign,
        )
        if state.utilization is not None:
            use.utilization = state.utilization
        if state.memory_used_bytes is not None:
            use.memory_used_bytes = state.memory_used_bytes
        if state.temperature_c is not None:
            use.temperature_c = state.temperature_c
        found.append(use)
    return found


async def send_descriptions(driver: AgentDriver, launcher: Launcher, address: str) -> None:
    """Send descriptions, for ever: with the facts to a new leader or when asked, else without."""
    in_full = True
    while True:
        await driver.leader.connected.wait()
        if driver.leader.new_leader.is_set():
            driver.leader.new_leader.clear()
            in_full = True
        driver.news.clear()
        message = node_pb2.NodeDescription(
            node=driver.settings.name, uses=gpu_uses(driver), problems=driver.gpus.problems
        )
        if in_full:
            message.facts.CopyFrom(node_facts(driver, launcher, address))
        reply = await driver.leader.describe(message)
        wait = driver.settings.timing.beat_s
        if reply is not None:
            driver.other_agents.set_addresses(dict(reply.peers))
            if reply.want_facts and not in_full:
                in_full = True
                continue
            in_full = False
            wait *= EVERY_BEATS
        waits = [asyncio.create_task(e.wait()) for e in (driver.news, driver.leader.new_leader)]
        try:
            await asyncio.wait(waits, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
