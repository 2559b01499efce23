"""The running agent: its parts, its port, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlsched import __version__
from dlsched.core.cluster.features import CONTAINER
from dlsched.nodeagent.agent import trust
from dlsched.nodeagent.agent.agent_driver import AgentDriver
from dlsched.nodeagent.agent.keepers.start import KeeperStart
from dlsched.nodeagent.agent.keepers.zygote_link import ZygoteLink
from dlsched.nodeagent.agent.node_description import (
    measured,
    node_facts,
    send_descriptions,
)
from dlsched.nodeagent.agent.node_policies import make_policy
from dlsched.nodeagent.agent.service import AgentService
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.user_files import UserFiles
from dlsched.nodeagent.gpus.backend import GpuBackend
from dlsched.nodeagent.gpus.fake import FakeGpus
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.host.launchers import Launcher
from dlsched.nodeagent.host.machine import machine_name
from dlsched.nodeagent.ranks.containers import find_tool
from dlsched.protocol import agent
from dlsched.protocol.messages import Inventory
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.endpoint import endpoint_at, parse_endpoint
from dlsched.rpc.server import add_ports, new_server
from dlsched.rpc.v1 import node_pb2_grpc
from dlsched.system import clock
from dlsched.system.service_manager import notify, watchdog_interval_s

if TYPE_CHECKING:
    from dlsched.nodeagent.agent.gpu_limits import GpuLimits, Send

log = logging.getLogger(__name__)
LEAVES_S = 8.0  # at most, after it was asked to; what counts is on disk or in keepers


def gpu_backend(settings: Settings) -> GpuBackend:
    """Return what reads this node's GPUs, or pretended ones."""
    if settings.fake_gpus:
        return FakeGpus(settings.name, settings.fake_gpus)
    from dlsched.nodeagent.gpus.nvml import NvmlGpus  # noqa: PLC0415  # only where it is used

    return NvmlGpus(settings.gpu_limit_s)


async def serve(settings: Settings, zygote: ZygoteLink, launcher: Launcher) -> int:
    """Run an agent until it is asked to leave; return its exit code."""
    leave = _leave_when_asked()
    backend = gpu_backend(settings)
    found = await asyncio.to_thread(backend.inventory)
    watch = GpuWatch(
        backend,
        found,
        every_s=min(settings.gpu_look_s, 1.0) if settings.node_policy else settings.gpu_look_s,
        limit_s=settings.gpu_limit_s + 2,
        drain_foreign=settings.foreign == "drain",
    )
    types = list(dict.fromkeys(gpu.type for gpu in found.gpus))
    driver = AgentDriver(
        settings,
        starter=KeeperStart(settings, zygote, launcher, found),
        gpus=watch,
        inventory=Inventory(
            gpus=tuple(gpu.uuid for gpu in found.gpus),
            gpu_type=types[0] if len(types) == 1 else "",
            agent_version=__version__,
            can_freeze=True,
            can_fence="fence" in launcher.capabilities,
            machine=machine_name(),
        ),
        trust=trust.trust_of_daemon(settings),
        limits=_limits(settings, watch) if settings.node_policy else None,
    )
    connections, files = ConnectionLimits(), UserFiles()
    server = new_server(trust.trust_of_callers(settings), connections=connections)
    node_pb2_grpc.add_AgentServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        AgentService(driver, files), server
    )
    port = add_ports(server, [settings.listen], trust.trust_of_callers(settings))[0]
    try:
        await driver.begin()
        await server.start()  # now: before, it knows neither its runs nor when it was renewed
        address = advertised_address(settings, port)
        log.info("listening address=%s", address)
        driver.tasks.start(connections.watch())
        driver.tasks.start(driver.reports.run())
        facts = node_facts(
            found,
            address,
            machine=measured(settings),
            launcher=launcher.name,
            capabilities=(
                *launcher.capabilities,
                *((CONTAINER,) if find_tool(settings.container_tool) else ()),
            ),
        )
        driver.tasks.start(send_descriptions(driver, facts))
        driver.tasks.start(zygote.keep(driver.note_zygote))

        def on_health() -> None:
            driver.handle(agent.HealthChanged(clock.boottime(), watch.unhealthy))
            driver.news.set()

        if settings.metrics:
            from dlsched.nodeagent.agent.metrics import AgentMetrics  # noqa: PLC0415  # few have it

            metrics = AgentMetrics(driver, lambda: trust.certificate_expiry(settings))
            log.info("metrics port=%d", metrics.listen(settings.metrics))
            driver.tasks.start(metrics.run())
        if not settings.fake_gpus:
            driver.tasks.start(watch.run(driver.keepers.runs_of, on_health))
        notify("READY=1")
        driver.tasks.start(_feed_watchdog())
        leaving = asyncio.ensure_future(leave.wait())
        ends: set[asyncio.Future[Any]] = {leaving, driver.tasks.failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if driver.tasks.failed.done():
            driver.tasks.failed.result()
        log.info("agent-leaves node=%s", settings.name)
        return 0
    finally:
        notify("STOPPING=1")
        await server.stop(0.2)
        await files.close()
        await driver.close()
        watch.close()


def _leave_when_asked() -> asyncio.Event:
    """Return an event that is set when the agent is asked to leave; it then ends soon, busy or not.

    Threads that hang in a call, as on a file system that is gone, would hold it up for ever.
    """
    loop, leave = asyncio.get_running_loop(), asyncio.Event()
    late = threading.Timer(LEAVES_S, os._exit, (1,))
    late.daemon = True

    def ask(_number: int, _frame: object) -> None:
        if not late.is_alive():
            late.start()
        loop.call_soon_threadsafe(leave.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    return leave


def _limits(settings: Settings, watch: GpuWatch) -> Callable[[Send], GpuLimits]:
    """Return what makes the limits of jobs on this node.

    Raises:
        BadInput: there is no such node policy or option.
    """
    from dlsched.nodeagent.agent.gpu_limits import GpuLimits  # noqa: PLC0415  # it loads numpy

    policy = make_policy(settings.node_policy, settings.name)
    return lambda send: GpuLimits(policy, settings.state_dir, send, watch)


async def _feed_watchdog() -> None:
    """Tell the service manager, as often as it wants to hear it, that the event loop turns."""
    while (interval := watchdog_interval_s()) is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval)


def advertised_address(settings: Settings, port: int) -> str:
    """Return where the daemon and other agents reach this agent."""
    given = settings.address
    if given.count(":") == 1 or "]:" in given:  # with a port
        return given
    host = given or parse_endpoint(settings.listen).host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return str(endpoint_at(host, port))
