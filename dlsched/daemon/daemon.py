"""One daemon, put together: store, shell, board, rounds, servers, metrics, supervision.

`Daemon` can run in any event loop, which is how tests and the quickstart have it beside others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from pathlib import Path
from typing import Any

from grpc_health.v1 import (  # type: ignore[import-untyped]
    health,
    health_pb2,
    health_pb2_grpc,
)

from dlsched.daemon import supervisor
from dlsched.daemon.agents import Agents
from dlsched.daemon.clock import boottime
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.governing import problems, reload
from dlsched.daemon.control.service import ControlService
from dlsched.daemon.leader_service import LeaderService, RunsService
from dlsched.daemon.metrics import Metrics
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.rounds import Rounds
from dlsched.daemon.settings import Settings
from dlsched.daemon.shell import Shell
from dlsched.daemon.spending import Spending
from dlsched.daemon.trust import DaemonTrust
from dlsched.db.errors import StoreUnavailable
from dlsched.db.store import Store
from dlsched.db.tokens import StoredTokens
from dlsched.db.versions import migrate
from dlsched.rpc.login import LoginServer
from dlsched.rpc.server import add_ports, new_server
from dlsched.rpc.tokens import LocalTokens
from dlsched.rpc.v1 import control_pb2_grpc, node_pb2_grpc

__all__ = ["Daemon"]

log = logging.getLogger("dlsched.daemon")
GRACE_S = 2.0  # for calls under way when the daemon stops
BEAT_S = 0.5
GATHER_S = 2.0


class Daemon:
    """A running daemon.

    Attributes:
        ports: of the addresses listened on, in order; 0 for a unix socket.
        metrics_port: of the metrics; 0 when there are none.
        failed: set when it cannot go on; `failure` says why.
    """

    def __init__(
        self, settings: Settings, *, file: Path | None = None, insecure_loopback: bool = False
    ) -> None:
        """Prepare it; nothing is opened yet."""
        self.settings = settings
        self.file = file
        self.insecure = insecure_loopback or settings.trust.mode == "insecure-loopback"
        self.ports: list[int] = []
        self.metrics_port = 0
        self.metrics = Metrics()
        self.cluster: Cluster
        self.shell: Shell
        self._store: Store | None = None
        self._server: Any = None
        self._login: LoginServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = False
        self.lag_s = 0.0

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the database, begin to contend, listen.

        Raises:
            DlschedError: one line, when it cannot.
        """
        settings = self.settings
        self._store = store = await self._open_store()
        name = settings.daemon.name or f"{socket.gethostname()}:{os.getpid()}"
        self.shell = shell = Shell(store, settings, name)
        trust = DaemonTrust(settings.trust, insecure=self.insecure)
        agents = Agents(trust.open_channel, trust.stamp)
        self.cluster = Cluster(shell, settings, agents, self.file)
        self.cluster.trust = trust
        worker = PolicyWorker(time_limit_s=settings.round.time_limit_s)
        self.rounds = Rounds(self.cluster, worker, self.metrics)
        self.predictions = Predictions(self.cluster)
        self.spending = Spending(self.cluster)
        await self._listen(trust)
        if settings.daemon.metrics:
            self.metrics_port = self.metrics.serve(settings.daemon.metrics)
        shell.start()
        self.rounds.start()
        self.predictions.start()
        self.spending.start()
        self._tasks.append(asyncio.create_task(self._beat(), name="loop-lag"))
        self._tasks.append(asyncio.create_task(self._warm(worker), name="worker-start"))
        log.info(
            "event=listening ports=%s metrics=%s database=%s",
            self.ports, self.metrics_port, store.where,
        )  # fmt: skip

    async def stop(self) -> None:
        """Stop listening, end the transaction in flight, let the lead go. Jobs run on."""
        supervisor.tell("STOPPING=1")
        if self._server is not None:
            await self._server.stop(GRACE_S)
        if self._login is not None:
            await self._login.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "rounds"):
            await self.predictions.stop()
            await self.spending.stop()
            await self.rounds.stop()
        if hasattr(self, "shell"):
            await self.shell.stop()
            await self.cluster.agents.close()
        self.metrics.close()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    async def reload(self, actor: str) -> list[str]:
        """Take the configuration file again; what has changed.

        Raises:
            BadInput: one line, and nothing has.
        """
        supervisor.tell("RELOADING=1", f"MONOTONIC_USEC={_monotonic_us()}")
        try:
            changes = list((await reload(self.cluster, actor)).changes)
        finally:
            supervisor.tell("READY=1")
        log.info("event=reload actor=%s changes=%r", actor, changes)
        return changes

    # -- parts -------------------------------------------------------------------------------------

    async def _open_store(self) -> Store:
        """Wait for a database that is away; a wrong or damaged one is an error at once."""
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
                supervisor.tell(f"STATUS=waiting for the database: {error}")
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, 10.0)

    async def _listen(self, proofs: DaemonTrust) -> None:
        listen = self.settings.daemon.listen
        sockets = [Path(text.removeprefix("unix:")) for text in listen if text.startswith("unix:")]
        tokens = LocalTokens() if sockets and not self.insecure else None
        assert self._store is not None
        trust = proofs.server(tokens, StoredTokens(self._store.engine))
        self._server = server = new_server(trust)
        services: tuple[tuple[Any, Any], ...] = (
            (node_pb2_grpc.add_LeaderServicer_to_server, LeaderService),
            (control_pb2_grpc.add_RunsServicer_to_server, RunsService),
            (control_pb2_grpc.add_ControlServicer_to_server, ControlService),
        )
        for add, service in services:
            add(service(self.cluster), server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.ports = add_ports(server, listen, trust)
        await server.start()
        if tokens is not None:
            self._login = LoginServer(sockets[0].parent / "login.sock", tokens)
            await self._login.start()

    async def _warm(self, worker: PolicyWorker) -> None:
        with contextlib.suppress(Exception):  # the first round says what is wrong with it
            await worker.start()

    # -- supervision -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Measure how late the loop is; feed the watchdog; say how things are."""
        every = supervisor.watchdog_s()
        fed = gathered = boottime()
        told = ""
        while True:
            before = boottime()
            await asyncio.sleep(BEAT_S)
            now = boottime()
            self.lag_s = max(0.0, now - before - BEAT_S)
            self.metrics.lag.observe(self.lag_s)
            if not self._ready and self.shell.settled.is_set() and not self.shell.store_down:
                self._ready = True
                await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
                supervisor.tell("READY=1")
            if every is not None and now - fed >= min(every, 5.0):
                fed = now
                supervisor.tell("WATCHDOG=1")
            if now - gathered >= GATHER_S:
                gathered = now
                self.metrics.gather(self.cluster)
                status = self._status()
                if status != told:
                    told = status
                    supervisor.tell(f"STATUS={status}")

    def _status(self) -> str:
        shell = self.shell
        if not shell.leading:
            return "standby" if not shell.store_down else f"no database: {shell.store_down}"
        colour, why = problems(self.cluster)
        live, nodes = len(shell.committed.jobs), len(shell.committed.nodes)
        first = f"; {why[0]}" if why else ""
        return f"{colour}: leading epoch {shell.state.epoch}, {live} jobs, {nodes} nodes{first}"


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
