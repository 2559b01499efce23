"""The site's fencing command: it switches a silent node off, so that its jobs can start anew.

It never runs in the event loop's way, and never twice at a time for a node. Only exit code 0 means
that the node is off; after anything else, nothing is known of the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.settings import FencingSection
from dlsched.protocol import leader
from dlsched.protocol.messages import Incarnation, NodeName
from dlsched.system.clock import boottime
from dlsched.system.site_commands import run_command

log = logging.getLogger("dlsched.daemon.fencing")
PAUSE_S = 10.0  # after the first failure; then twice as long each time


@dataclass(slots=True)
class Tries:
    """What was tried for a node since it was last heard."""

    incarnation: Incarnation
    heard_at: float | None
    count: int = 0
    next_at: float = 0.0
    words: str = ""
    task: asyncio.Task[None] | None = None


class Fencing:
    """Runs the fencing command for nodes that the leader asks to switch off."""

    def __init__(self, driver: LeaderDriver, settings: Callable[[], FencingSection]) -> None:
        """Follow what the leader asks.

        Args:
            driver: of the leader.
            settings: the section of the configuration that is in force now.
        """
        self._driver, self._settings = driver, settings
        self._tries: dict[NodeName, Tries] = {}
        driver.power_off = self.power_off

    def words(self, node: NodeName) -> str:
        """What is known of the command for a node that is silent; empty when it was not tried."""
        tries = self._tries.get(node)
        return tries.words if tries is not None and self._heard_at(node) == tries.heard_at else ""

    def power_off(self, asked: leader.PowerOff) -> None:
        """Begin to switch a node off, unless that is under way or has failed often enough."""
        settings = self._settings()
        if not settings.command:
            return
        known, heard_at = self._tries.get(asked.node), self._heard_at(asked.node)
        if known is not None and known.task is not None:
            return
        if known is None or (known.incarnation, known.heard_at) != (asked.incarnation, heard_at):
            known = self._tries[asked.node] = Tries(asked.incarnation, heard_at)
        if known.count > settings.retries or asked.asked_at < known.next_at:
            return
        known.count += 1
        known.words = "the fencing command runs"
        known.task = asyncio.get_running_loop().create_task(self._run(asked, known, settings))

    async def close(self) -> None:
        """End the commands that run; what they would have said counts for nothing."""
        tasks = [tries.task for tries in self._tries.values() if tries.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _heard_at(self, node: NodeName) -> float | None:
        last = self._driver.state.last_syncs.get(node)
        return None if last is None else last.at

    async def _run(self, asked: leader.PowerOff, tries: Tries, settings: FencingSection) -> None:
        node = asked.node
        try:
            log.warning("event=fencing node=%s try=%s", node, tries.count)
            why = await run_command(settings.command_for(node), settings.timeout_s)
            if not why:
                tries.words = ""  # from now on the node's own reason says it
                log.warning("event=fenced node=%s", node)
                self._driver.step(leader.NodeOff(boottime(), node, asked))
                return
            tries.next_at = boottime() + PAUSE_S * 2 ** (tries.count - 1)
            of = settings.retries + 1
            tries.words = (
                f"not known to be off: the fencing command {why} (try {tries.count} of {of})"
            )
            log.error("event=fencing-failed node=%s try=%s why=%r", node, tries.count, why)
        finally:
            tries.task = None
