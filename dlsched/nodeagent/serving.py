"""The running agent: its port, its tasks, its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import Any

from dlsched import __version__
from dlsched.nodeagent import clock, trust
from dlsched.nodeagent.births import Births
from dlsched.nodeagent.description import describe
from dlsched.nodeagent.gpus.backend import GpuBackend
from dlsched.nodeagent.gpus.fake import FakeGpus
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.launchers import Launcher
from dlsched.nodeagent.service import AgentService
from dlsched.nodeagent.settings import Settings
from dlsched.nodeagent.shell import AgentShell
from dlsched.nodeagent.systemd_notify import notify, watchdog
from dlsched.nodeagent.zygote_link import ZygoteLink
from dlsched.protocol import agent
from dlsched.protocol.messages import Inventory
from dlsched.rpc.server import add_ports, new_server
from dlsched.rpc.v1 import node_pb2_grpc

log = logging.getLogger(__name__)


def backend_of(settings: Settings) -> GpuBackend:
    """Who answers for the GPUs."""
    if settings.fake_gpus:
        return FakeGpus(settings.name, settings.fake_gpus)
    from dlsched.nodeagent.gpus.nvml import NvmlGpus  # noqa: PLC0415  # only where it is used

    return NvmlGpus(settings.gpu_limit_s)


async def serve(settings: Settings, zygote: ZygoteLink, launcher: Launcher) -> int:
    """Run until asked to leave."""
    loop = asyncio.get_running_loop()
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave.set)
    backend = backend_of(settings)
    found = await asyncio.to_thread(backend.inventory)
    watch = GpuWatch(
        backend,
        found,
        every_s=settings.gpu_look_s,
        limit_s=settings.gpu_limit_s + 2,
        drain_foreign=settings.foreign == "drain",
    )
    types = list(dict.fromkeys(gpu.type for gpu in found.gpus))
    shell = AgentShell(
        settings,
        births=Births(settings, zygote, launcher, found),
        gpus=watch,
        inventory=Inventory(
            gpus=tuple(gpu.uuid for gpu in found.gpus),
            gpu_type=types[0] if len(types) == 1 else "",
            agent_version=__version__,
            can_freeze=True,
            can_fence="fence" in launcher.capabilities,
        ),
        trust=trust.client(settings),
    )
    server = new_server(trust.server(settings))
    node_pb2_grpc.add_AgentServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        AgentService(shell), server
    )
    port = add_ports(server, [settings.listen], trust.server(settings))[0]
    await server.start()
    try:
        await shell.begin()
        address = advertised(settings, port)
        log.info("listening address=%s", address)
        shell.task(shell.progress.run())
        shell.task(describe(shell, launcher, address))

        def looked() -> None:
            shell.handle(agent.HealthChanged(clock.now(), watch.unhealthy))
            shell.changed.set()

        if not settings.fake_gpus:
            shell.task(watch.run(shell.owners, looked))
        notify("READY=1")
        shell.task(watchdog())
        leaving = asyncio.ensure_future(leave.wait())
        ends: set[asyncio.Future[Any]] = {leaving, shell.failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if shell.failed.done():
            shell.failed.result()
        log.info("agent-leaves node=%s", settings.name)
        return 0
    finally:
        notify("STOPPING=1")
        await server.stop(0.2)
        await shell.close()
        watch.close()


def advertised(settings: Settings, port: int) -> str:
    """Where others reach this agent."""
    host = settings.address or settings.listen.rpartition(":")[0].strip("[]")
    if settings.address and ":" in settings.address:
        return settings.address
    if host in ("", "0.0.0.0", "::"):
        host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
