"""Whether this node can start jobs: a run of nothing, by the way that every run takes.

The daemon asks for it after starts have failed here. The site's health check is made, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Callable
from typing import Any

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.health_check import HealthCheck
from dlsched.nodeagent.agent.keepers import cleanup
from dlsched.nodeagent.agent.keepers.link import KeeperLink
from dlsched.nodeagent.agent.keepers.start import KeeperStart
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.json_values import value_of
from dlsched.nodeagent.keeper.run_files import RunFolder, make_folders
from dlsched.nodeagent.ranks.launch_spec import LaunchFacts
from dlsched.protocol import messages as m
from dlsched.system import clock

log = logging.getLogger(__name__)
LIMIT_S = 60.0
EVERY_S = 10.0  # from the end of a check until the next, at least
_SCRIPT = b"#!/bin/sh\n"


class StartCheck:
    """Checks when it is asked to; its result is told once."""

    def __init__(
        self,
        settings: Settings,
        starter: KeeperStart,
        health: HealthCheck,
        told: Callable[[], None],
    ) -> None:
        """Check nothing yet.

        Args:
            settings: of the agent.
            starter: starts keepers.
            health: the site's check.
            told: is called when there is a result.
        """
        self._name, self._health, self._on_result = m.NodeName(settings.name), health, told
        # beside the runs, whose folders an agent reads at its start: on the same disks
        self._folders = (
            os.path.join(os.path.abspath(settings.state_dir), "check"),
            os.path.join(os.path.abspath(settings.run_dir), "check"),
        )
        self._starter = starter.apart(*self._folders)
        self._result: str | None = None
        self._busy = False
        self._next_at = 0.0  # in seconds since the boot

    async def check(self) -> None:
        """Check once, unless a check is under way or has just been made."""
        if self._busy or clock.boottime() < self._next_at:
            return
        self._busy = True
        try:
            await self._health.check_if_any()
            why = self._health.fault or await self._try_to_start()
        finally:
            self._busy = False
            self._next_at = clock.boottime() + EVERY_S
        log.info("start-check node=%s failed=%r", self._name, why)
        self._result = why
        self._on_result()

    def take_result(self) -> str | None:
        """Why the last check failed, empty when it passed; None when that has been taken."""
        result, self._result = self._result, None
        return result

    async def _try_to_start(self) -> str:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._run()
        except TimeoutError:
            return f"a start takes longer than {LIMIT_S:g} s"
        except (DlschedError, OSError) as error:
            return (error.strerror if isinstance(error, OSError) else None) or str(error)
        finally:
            await asyncio.to_thread(self.clear)

    def clear(self) -> None:
        """Delete what a check has left, and kill its keeper."""
        with contextlib.suppress(OSError, DlschedError):  # after a boot, a part may be gone
            for found in cleanup.remaining_runs(*self._folders):
                if (process := found.file.keeper.open()) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                    os.close(process)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    async def _run(self) -> str:
        """Start a run and wait for its end; why it failed."""
        await asyncio.to_thread(self.clear)
        await asyncio.to_thread(make_folders, *self._folders)
        desired = m.DesiredRun(
            key=m.RunKey(m.JobId(0), m.RunNumber(1), m.RunId(secrets.token_hex(8))),
            want=m.Want.RUNNING,
            epoch=m.Epoch(0),
            boot_id=m.BootId(clock.boot_id()),
            gpus=(),
            layout=(m.Share(node=self._name, gpus=()),),
        )
        uid, gid = os.geteuid(), os.getegid()
        launch = LaunchFacts(user="", uid=uid, gid=gid, groups=(gid,), script=_SCRIPT)
        started, facts = await self._starter.start(desired, launch, None)
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        said = ["its keeper was lost"]

        def end(why: str) -> None:
            if not ended.done():
                ended.set_result(why)

        def on_message(_run: m.RunId, message: dict[str, Any]) -> None:
            if "failed" in message:
                said[0] = str(message["failed"])
            exit_of = message.get("status", {}).get("exit")
            if exit_of:
                record = value_of(m.ExitRecord, exit_of)
                well = record.reason is m.ExitReason.EXITED and record.code == 0
                end("" if well else record.detail or record.reason.value)

        folder = RunFolder(*self._folders, desired.key)
        link = KeeperLink(
            desired.key.run_id,
            started.pid,
            started.process_fd,
            folder.agent_socket,
            on_message=on_message,
            on_end=lambda _run: end(said[0]),
        )
        link.begin(started.connection)
        try:
            return await ended
        finally:
            link.kill()  # nothing is left of a run of nothing
            link.close()
            await cleanup.remove_cgroup(facts.cgroup, asyncio.to_thread)
