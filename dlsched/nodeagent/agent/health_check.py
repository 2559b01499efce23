"""The site's command that looks after a node's health: a node at which it fails is drained."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dlsched.nodeagent.agent.settings import Settings
from dlsched.system.command_path import PATH
from dlsched.system.site_commands import run_command

log = logging.getLogger(__name__)


class HealthCheck:
    """Runs the command again and again.

    Attributes:
        fault: why the last run failed; empty while the node is well.
    """

    def __init__(self, settings: Settings, changed: Callable[[], None]) -> None:
        """Check nothing yet; `changed` is called whenever `fault` changes."""
        self._settings, self._changed = settings, changed
        self.fault = ""

    async def watch_for_ever(self) -> None:
        """Check at once and then at the site's interval; returns at once without a command."""
        hooks = self._settings.hooks
        while hooks.health:
            await self.check()
            await asyncio.sleep(hooks.health_every_s)

    async def check_if_any(self) -> None:
        """Run the command once, if there is one."""
        if self._settings.hooks.health:
            await self.check()

    async def check(self) -> None:
        """Run the command once."""
        hooks = self._settings.hooks
        environment = {
            "PATH": PATH,
            "LC_ALL": "C.UTF-8",
            "DLSCHED_HOOK": "health",
            "DLSCHED_NODE": self._settings.name,
            "SLURMD_NODENAME": self._settings.name,
        }
        failed = await run_command(hooks.health, hooks.health_limit_s, environment=environment)
        fault = f"health check {failed}" if failed else ""
        if fault != self.fault:
            level = logging.ERROR if fault else logging.INFO
            log.log(level, "health-check node=%s failed=%r", self._settings.name, failed)
            self.fault = fault
            self._changed()
