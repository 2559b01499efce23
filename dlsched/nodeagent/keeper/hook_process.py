"""The process of a site's hook, as a keeper starts and kills it: root's, with its words bounded."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dlsched.nodeagent.ranks.hook_environment import hook_environment
from dlsched.protocol import keeper as protocol
from dlsched.system import clock
from dlsched.system.fault_points import fault_point

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

KEPT = 4096  # bytes of what a hook writes: the last ones
LONGEST_WORDS = 300  # characters of the line that is reported
_DEFAULTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


class HookProcess:
    """At most one hook at a time: the prolog, or later the epilog."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """Have none yet; the end of one becomes an event of the keeper."""
        self._keeper = keeper
        self._name = ""
        self._pid = 0
        self._began = 0.0
        self._pipe = -1
        self._said = b""

    def start(self, name: Literal["prolog", "epilog"]) -> None:
        """Start a hook; its end is an event, also when it cannot be started."""
        spec, state = self._keeper.spec, self._keeper.state
        words: Sequence[str] = getattr(spec.hooks, name)
        environment = hook_environment(name, spec.node, state.desired, spec.facts, state.exit)
        self._name, self._said, self._began = name, b"", clock.boottime()
        fault_point("keeper-hook-before")
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            self._pid = os.posix_spawn(
                words[0],
                list(words),
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_DUP2, writing, 2),
                ],
                setsid=True,
                setsigdef=_DEFAULTS,
            )
        except OSError as error:
            os.close(reading)
            self._report(f"cannot be started: {error.strerror}")
            return
        finally:
            os.close(writing)
        self._pipe = reading
        os.set_blocking(reading, False)
        self._keeper.watch(reading, lambda _mask: self._read())
        fault_point("keeper-hook-started")

    def kill(self) -> None:
        """Kill the hook and what it has started in its session."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def ended(self, pid: int, status: int) -> bool:
        """Take the end of a child; return False when it was not the hook.

        `status` is its exit code, or the negative number of the signal that ended it.
        """
        if not self._pid or pid != self._pid:
            return False
        self._pid = 0
        self._read()
        self._close()
        how = f"ended with {status}" if status > 0 else f"was killed by signal {-status}"
        self._report(how if status else "")
        return True

    def _read(self) -> None:
        """Read what there is; only the last of it is kept."""
        with contextlib.suppress(BlockingIOError):
            while self._pipe >= 0:
                data = os.read(self._pipe, 65536)
                if not data:
                    self._close()
                    return
                self._said = (self._said + data)[-KEPT:]

    def _close(self) -> None:
        if self._pipe >= 0:
            self._keeper.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _report(self, failed: str) -> None:
        lines = [line.strip() for line in self._said.decode("utf-8", "replace").split("\n")]
        last = next((line for line in reversed(lines) if line), "")[-LONGEST_WORDS:]
        words = "".join(c if c.isprintable() else " " for c in last)
        now = clock.boottime()
        self._keeper.send_to_agent(
            {"hook": {"name": self._name, "failed": failed, "said": words, "s": now - self._began}}
        )
        told = f"{failed}: {words}" if failed and words else failed
        self._keeper.feed_later(protocol.HookEnded(now, told))
