"""One daemon, put together: every part is made here and given to the parts that need it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Coroutine
from pathlib import Path

from grpc_health.v1 import (  # type: ignore[import-untyped]
    health,
    health_pb2,
    health_pb2_grpc,
)

from dlsched.core.errors import BadInput, PolicyFailed, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.cluster_admin import ClusterAdmin
from dlsched.daemon.control.service import ControlService
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.leader_service import LeaderService, RunsService
from dlsched.daemon.long_lived import LongLivedObjects
from dlsched.daemon.loops.gpu_hours import GpuHours
from dlsched.daemon.loops.retention import forget_for_ever
from dlsched.daemon.loops.user_groups import follow_groups
from dlsched.daemon.metrics.metrics import Metrics
from dlsched.daemon.nodes.agents import Agents
from dlsched.daemon.notifying.notifier import Notifier
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.round.configured import named_policies, of_section
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.rounds import Rounds
from dlsched.daemon.settings import Settings
from dlsched.daemon.supposing.shadow import Shadow
from dlsched.daemon.supposing.what_if import WhatIf
from dlsched.daemon.training.page import TrainingPage
from dlsched.daemon.training.pruning import prune_for_ever
from dlsched.daemon.trust import DaemonTrust
from dlsched.daemon.web_page import WebPage, own_address
from dlsched.db.errors import StoreUnavailable
from dlsched.db.store import Store
from dlsched.db.tokens import StoredTokens
from dlsched.db.versions import migrate
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.local_calls import LocalCalls
from dlsched.rpc.local_frames import calls_path
from dlsched.rpc.login import LoginServer
from dlsched.rpc.server import add_ports, new_interceptor, new_server
from dlsched.rpc.tokens import LocalTokens
from dlsched.rpc.v1 import control_pb2_grpc, node_pb2_grpc
from dlsched.system import service_manager
from dlsched.system.clock import boottime

log = logging.getLogger("dlsched.daemon")
GRACE_S = 2.0  # for calls under way when the daemon stops
BEAT_S = 0.5
GATHER_S = 2.0


class Daemon:
    """A running daemon; it can run beside others in any event loop.

    Attributes:
        settings: the configuration at the start.
        ports: of the addresses listened on, in order; 0 for a unix socket.
        metrics_port: of the metrics; 0 without metrics.
        driver: of the leader; this and the following from `start` on.
        cluster: the state in memory.
        rounds: the round loop.
        predictions: of starts and ends.
        what_if: answers questions about alternatives.
        shadow: a policy that decides without acting.
        web_page: the process of the web page; None without.
        lag_s: how late the event loop was at the last beat, in seconds.
    """

    driver: LeaderDriver
    cluster: Cluster
    rounds: Rounds
    predictions: Predictions
    what_if: WhatIf
    shadow: Shadow

    def __init__(
        self, settings: Settings, *, file: Path | None = None, insecure_loopback: bool = False
    ) -> None:
        """Prepare a daemon; nothing is opened yet.

        The configuration can be read again from `file`, if there is one; `insecure_loopback` trusts
        every process of this machine, for development.
        """
        self.settings = settings
        self.ports: list[int] = []
        self.metrics_port = 0
        self.web_page: WebPage | None = None
        self.lag_s = 0.0
        self._file = file
        self._insecure = insecure_loopback or settings.trust.mode == "insecure-loopback"
        self._trust = DaemonTrust(settings.trust, insecure=self._insecure)
        self._metrics = Metrics()
        self._parts = contextlib.AsyncExitStack()  # what has been opened, to be closed in reverse
        self._admin: ClusterAdmin
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = False

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the database, contend for the lead, listen.

        Raises:
            DlschedError: one line that says why it cannot.
        """
        settings, parts = self.settings, self._parts
        store = await self._open_store()
        parts.push_async_callback(asyncio.to_thread, store.close)
        parts.callback(self._metrics.close)
        trust = self._trust
        agents = Agents(trust.open_channel, trust.stamp)
        parts.push_async_callback(agents.close)
        name = settings.daemon.name or f"{socket.gethostname()}:{os.getpid()}"
        self.driver = LeaderDriver(store, settings.timing.timing(), name, agents)
        parts.push_async_callback(self.driver.stop)
        self._metrics.follow(self.driver)
        self.cluster = Cluster(self.driver, settings, agents)
        parts.push_async_callback(self.cluster.fencing.close)
        worker = PolicyWorker(time_limit_s=settings.round.time_limit_s)
        parts.push_async_callback(worker.close)
        await self._check_policies(worker)
        self.rounds = Rounds(self.cluster, worker, self._metrics)
        parts.push_async_callback(self.rounds.stop)
        gpu_hours = GpuHours(self.cluster, self.rounds)
        parts.push_async_callback(gpu_hours.stop)
        self.predictions = Predictions(self.cluster)
        parts.push_async_callback(self.predictions.stop)
        self.what_if = WhatIf(self.cluster)
        parts.push_async_callback(self.what_if.stop)
        self.shadow = Shadow(self.cluster)
        parts.push_async_callback(self.shadow.stop)
        notifier = Notifier(self.cluster)
        parts.push_async_callback(notifier.stop)
        self._admin = ClusterAdmin(self.cluster, self.rounds, self.shadow, trust, self._file)
        await self._listen(trust, store)
        if settings.daemon.metrics:
            self.metrics_port = self._metrics.serve(
                settings.daemon.metrics,
                TrainingPage(self.cluster, asyncio.get_running_loop()),
            )
        if settings.daemon.web:
            self._serve_page(settings)
        self.driver.start()
        self.rounds.start()
        gpu_hours.start()
        self.predictions.start()
        self.shadow.start()
        notifier.start()
        self._run_task(self._beat(), "loop-lag")
        self._run_task(self._warm_up(worker), "worker-start")
        self._run_task(prune_for_ever(self.cluster), "checkpoint-pruning")
        self._run_task(forget_for_ever(self.cluster), "history-retention")
        self._run_task(follow_groups(self.cluster), "groups-of-users")
        log.info(
            "event=listening ports=%s metrics=%s database=%s",
            self.ports, self.metrics_port, store.where,
        )  # fmt: skip

    async def stop(self) -> None:
        """Stop listening, let the transaction in flight end, give up the lead. Jobs run on."""
        service_manager.notify("STOPPING=1")
        await self._parts.aclose()

    async def reload(self, actor: str) -> list[str]:
        """Read the configuration file again; returns what has changed.

        Raises:
            BadInput: one line that says what is wrong; then nothing has changed.
        """
        service_manager.notify("RELOADING=1", f"MONOTONIC_USEC={_monotonic_us()}")
        try:
            changes = list((await self._admin.reload(actor)).changes)
        finally:
            service_manager.notify("READY=1")
        log.info("event=reload actor=%s changes=%r", actor, changes)
        return changes

    # -- parts -------------------------------------------------------------------------------------

    async def _open_store(self) -> Store:
        """Open the database; wait while it is away. A wrong or damaged one is an error at once."""
        url, pause = self.settings.daemon.database, 0.5
        while True:
            try:
                if self.settings.daemon.migrate:
                    was, now = await asyncio.to_thread(migrate, url)
                    if was not in (None, now):
                        log.warning("event=migrated from=%s to=%s", was, now)
                return await asyncio.to_thread(Store.open, url)
            except StoreUnavailable as error:
                log.error("event=database-away why=%r again_in_s=%.1f", str(error), pause)
                service_manager.notify(f"STATUS=waiting for the database: {error}")
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, 10.0)

    async def _listen(self, trust: DaemonTrust, store: Store) -> None:
        listen = self.settings.daemon.listen
        sockets = [Path(text.removeprefix("unix:")) for text in listen if text.startswith("unix:")]
        tokens = LocalTokens() if sockets and not self._insecure else None
        server_trust = trust.server(tokens, StoredTokens(store.engine))
        connections = ConnectionLimits(self.settings.limits.connections)
        interceptor = new_interceptor(server_trust, connections=connections)
        server = new_server(server_trust, interceptor=interceptor)
        cluster = self.cluster
        control = ControlService(
            cluster, self.rounds, self.predictions, self.what_if, self.shadow, self._admin
        )
        self._parts.push_async_callback(control.site_filter.close)
        node_pb2_grpc.add_LeaderServicer_to_server(LeaderService(cluster), server)  # type: ignore[no-untyped-call]
        control_pb2_grpc.add_RunsServicer_to_server(RunsService(cluster), server)  # type: ignore[no-untyped-call]
        control_pb2_grpc.add_ControlServicer_to_server(control, server)  # type: ignore[no-untyped-call]
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.ports = add_ports(server, listen, server_trust)
        self._parts.push_async_callback(self._stop_tasks)
        if tokens is not None:
            login = LoginServer(sockets[0].parent / "login.sock", tokens)
            self._parts.push_async_callback(login.stop)
            await login.start()
        for path in sockets:
            calls = LocalCalls(
                Path(calls_path(str(path))), interceptor, mode=server_trust.socket_mode
            )
            control_pb2_grpc.add_ControlServicer_to_server(control, calls)  # type: ignore[no-untyped-call]
            self._parts.push_async_callback(calls.stop, GRACE_S)
            await calls.start()
        self._parts.push_async_callback(server.stop, GRACE_S)
        await server.start()
        self._run_task(connections.watch(), "connections")

    def _serve_page(self, settings: Settings) -> None:
        daemon = own_address(settings.daemon.listen, self.ports, insecure=self._insecure)
        if not daemon:
            raise BadInput("daemon.web: needs a users:HOST:PORT address in daemon.listen")
        trust = None if self._insecure else Path(settings.trust.folder)
        self.web_page = WebPage(settings.daemon.web, daemon, trust)
        self._run_task(self.web_page.run(), "web-page")

    def _run_task(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _check_policies(self, worker: PolicyWorker) -> None:
        """Refuse a configuration whose policies cannot be made; the first round tells the rest."""
        for section, policy in named_policies(self.settings).items():
            try:
                with of_section(section):
                    await worker.check_policy(policy)
            except PolicyFailed as error:
                log.error("event=policy-failed why=%r", str(error))

    async def _warm_up(self, worker: PolicyWorker) -> None:
        with contextlib.suppress(Exception):  # the first round says what is wrong with it
            await worker.start()

    # -- supervision -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Measure how late the loop is, feed the watchdog, report the status."""
        every = service_manager.watchdog_interval_s()
        objects = LongLivedObjects()
        try:
            await self._beats(objects, every)
        finally:
            objects.close()

    async def _beats(self, objects: LongLivedObjects, every: float | None) -> None:
        fed = gathered = boottime()
        reported = ""
        while True:
            before = boottime()
            await asyncio.sleep(BEAT_S)
            now = boottime()
            self.lag_s = max(0.0, now - before - BEAT_S)
            self._metrics.lag.observe(self.lag_s)
            objects.settle()
            if not self._ready and self.driver.settled.is_set() and not self.driver.store_down:
                self._ready = True
                await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
                service_manager.notify("READY=1")
            if every is not None and now - fed >= min(every, 5.0):
                fed = now
                service_manager.notify("WATCHDOG=1")
            if now - gathered >= GATHER_S:
                gathered = now
                self._metrics.gather(self.cluster, self._trust.expires_at())
                status = self._status()
                if status != reported:
                    reported = status
                    service_manager.notify(f"STATUS={status}")

    def _status(self) -> str:
        driver = self.driver
        if not driver.leading:
            return "standby" if not driver.store_down else f"no database: {driver.store_down}"
        colour, why = self._admin.problems()
        live = plural(len(driver.committed.jobs), "job")
        nodes = plural(len(driver.committed.nodes), "node")
        first = f"; {why[0]}" if why else ""
        return f"{colour}: leading epoch {driver.state.epoch}, {live}, {nodes}{first}"


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
