"""What an agent tells of its node beside its syncs: what it is, and how its GPUs are."""

from __future__ import annotations

import asyncio
import os

from dlsched.nodeagent.launchers import Launcher
from dlsched.nodeagent.shell import AgentShell
from dlsched.rpc.v1 import node_pb2

EVERY_BEATS = 4


def facts(shell: AgentShell, launcher: Launcher, address: str) -> node_pb2.NodeFacts:
    """What the node is."""
    inventory = shell.gpus.inventory
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


def uses(shell: AgentShell) -> list[node_pb2.GpuUse]:
    """What the GPUs do now."""
    found = []
    for uuid, state in shell.gpus.states.items():
        use = node_pb2.GpuUse(
            uuid=uuid,
            problem=shell.gpus.why.get(uuid, "") or shell.gpus.foreign.get(uuid, ""),
            foreign=uuid in shell.gpus.foreign,
        )
        if state.utilization is not None:
            use.utilization = state.utilization
        if state.memory_used_bytes is not None:
            use.memory_used_bytes = state.memory_used_bytes
        if state.temperature_c is not None:
            use.temperature_c = state.temperature_c
        found.append(use)
    return found


async def describe(shell: AgentShell, launcher: Launcher, address: str) -> None:
    """Tell, for ever: all of it to a leader that asks, else what changes."""
    in_full = True
    while True:
        await shell.leader.connected.wait()
        if shell.leader.another.is_set():
            shell.leader.another.clear()
            in_full = True
        shell.changed.clear()
        message = node_pb2.NodeDescription(
            node=shell.settings.name, uses=uses(shell), problems=shell.gpus.problems
        )
        if in_full:
            message.facts.CopyFrom(facts(shell, launcher, address))
        reply = await shell.leader.describe(message)
        wait = shell.settings.timing.beat_s
        if reply is not None:
            shell.peers.learn(dict(reply.peers))
            if reply.want_facts and not in_full:
                in_full = True
                continue
            in_full = False
            wait *= EVERY_BEATS
        news = [asyncio.create_task(e.wait()) for e in (shell.changed, shell.leader.another)]
        try:
            await asyncio.wait(news, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in news:
                task.cancel()
