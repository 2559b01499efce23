"""Commands of a site: their end, their words, and one that cannot be killed."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from dlsched.system import site_commands
from dlsched.system.site_commands import run_command


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", ""),
        ("echo no; exit 3", "ended with 3: no"),
        ("echo soon; sleep 60", "took longer than 2 s: soon"),
    ],
)
def test_a_command_says_why_it_did_not_succeed(script: str, why: str) -> None:
    assert (
        asyncio.run(run_command(("/bin/sh", "-c", script), 2.0 if "sleep" in script else 30.0))
        == why
    )


def test_a_command_that_outlives_sigkill_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    started: list[asyncio.subprocess.Process] = []
    genuine, start = os.killpg, asyncio.create_subprocess_exec

    async def remember(*command: Any, **how: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **how))
        return started[-1]

    async def scene() -> str:
        try:
            return await run_command(("/bin/sleep", "60"), 0.1)
        finally:
            for group in asked:
                genuine(group, signal.SIGKILL)
            for process in started:
                await process.wait()

    with monkeypatch.context() as patch:
        patch.setattr(site_commands, "_KILLED_S", 0.1)
        patch.setattr(site_commands.os, "killpg", lambda group, _number: asked.append(group))
        patch.setattr(site_commands.asyncio, "create_subprocess_exec", remember)
        assert asyncio.run(scene()) == "took longer than 0.1 s"
    assert asked
