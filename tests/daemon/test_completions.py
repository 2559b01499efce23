"""Words that a shell offers while a command is typed, from a real daemon."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from .cluster_of_tests import Caller, Running, eventually
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_replayed import dlsched


async def offered(daemon: str, line: str) -> list[str]:
    """What bash would offer at the end of a line."""
    words = line.split(" ")
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("dlsched")),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ, "DLSCHED_DAEMON": daemon, "DLSCHED_INSECURE_LOOPBACK": "1",
            "_DLSCHED_COMPLETE": "complete_bash", "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )  # fmt: skip
    out, err = await process.communicate()
    assert err == b"", err
    return out.decode().split()


async def offers(daemon: str, line: str, *wanted: str) -> None:
    """Wait until bash would offer these words; it offers none where the daemon is late."""

    async def are_offered() -> bool:
        return set(await offered(daemon, line)) == set(wanted)

    await eventually(are_offered)


def test_a_shell_offers_live_jobs_nodes_and_policies(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        daemon = running.target
        for words in (["--gpus", "4"], ["-a", "3-5"]):
            code, _, err = await dlsched(running, "submit", "--open-ended", *words, "--", "true")
            assert code == 0, err
        await reaches(caller, 1, "RUNNING")
        await eventually(lambda: running.daemon.cluster.live.position(2))
        await offers(daemon, "dlsched cancel ", "1", "2")
        await offers(daemon, "dlsched show 2", "2")
        agent.end_job(1)
        await reaches(caller, 2, "RUNNING")
        await offers(daemon, "dlsched logs 2", "2", "2_3", "2_4", "2_5")
        await offers(daemon, "dlsched nodes n", "n1")
        assert await offered(daemon, "dlsched drain x") == []
        assert await offered(daemon, "dlsched replay --policy fifo,tires") == ["fifo,tiresias"]
        assert await offered("127.0.0.1:1", "dlsched cancel ") == []

    play(tmp_path, scene)
