"""The web page of the daemon: a process of its own, which asks the daemon as any client does.

It decides nothing and has no rights: each viewer's token goes on to the daemon. It ends with the
daemon, whose end closes its standard input; when it dies, it is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from dlsched.system.child_python import child_environment

log = logging.getLogger("dlsched.daemon.web_page")
USERS = "users:"  # before an address that takes tokens
_REACHED = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before it is started again


class WebPage:
    """The process that serves the page.

    Attributes:
        address: of the page, when it listens; else empty.
    """

    def __init__(self, listen: str, daemon: str, trust: Path | None) -> None:
        """Prepare; `run` starts it.

        Args:
            listen: HOST:PORT of the page.
            daemon: address at which the daemon takes tokens; without `trust`, any.
            trust: folder of the daemon's certificates; None: development on loopback.
        """
        known = ["--insecure-loopback"] if trust is None else ["--trust", str(trust)]
        self._words = ["--listen", listen, "--daemon", daemon, *known]
        self.address = ""

    async def run(self) -> None:
        """Serve until this task is cancelled."""
        pause = PAUSE_S
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._once()
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE_S:
                pause = PAUSE_S
            log.error("event=web-page-ended code=%s again_in_s=%.0f", code, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _once(self) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "dlsched.cli.web",
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
            cwd="/",
        )
        try:
            assert process.stdout is not None
            self.address = (await process.stdout.readline()).decode().strip()
            if self.address:
                log.info("event=web-page address=%s", self.address)
            return await process.wait()
        finally:
            self.address = ""
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def own_address(listen: Sequence[str], ports: Sequence[int], *, insecure: bool) -> str:
    """Where a process of this machine reaches the daemon with tokens.

    Args:
        listen: `daemon.listen`.
        ports: of these addresses.
        insecure: for development, when every address takes every process of this machine.

    Returns:
        HOST:PORT, or unix:/PATH; empty where the daemon takes no tokens.
    """
    for text, port in zip(listen, ports, strict=True):
        if not insecure and not text.startswith(USERS):
            continue
        host = text.removeprefix(USERS).rpartition(":")[0]
        if not port:
            return text
        return f"{_REACHED.get(host, host)}:{port}"
    return ""
