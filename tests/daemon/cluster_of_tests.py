"""A daemon in this event loop with a real database, and a client of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlsched.daemon.daemon import Daemon
from dlsched.daemon.settings import Settings
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import control_pb2_grpc

BEAT = {"beat_s": 0.4}


def settings_of(folder: Path, **sections: Any) -> Settings:
    given: dict[str, Any] = {
        "daemon": {
            "database": f"sqlite:///{folder / 'dlsched.db'}",
            "listen": ["127.0.0.1:0"],
            "metrics": "",
        },
        "round": {"interval_s": 30.0},
        "trust": {"mode": "insecure-loopback", "operators": ["root"]},
        "timing": BEAT,
    }
    for name, section in sections.items():
        merged = {**given.get(name, {}), **section} if isinstance(section, dict) else section
        given[name] = merged
    return Settings.model_validate(given)


async def eventually(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """The condition's value when it is true; a test that waits for it in vain fails."""
    until = time.monotonic() + within_s
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < until, "it did not come"
        await asyncio.sleep(0.01)


class Caller:
    """A user's client."""

    def __init__(self, target: str, user: str = "ann", uid: int = 1001) -> None:
        self.channel = open_channel(target, ClientTrust.claimed_user(user, uid))
        self.control = control_pb2_grpc.ControlStub(self.channel)

    async def submit(self, *jobs: c.JobRequest, request_id: str = "", **more: Any) -> list[int]:
        asked = c.SubmitRequest(request_id=request_id, jobs=jobs or [job()], **more)
        reply = await self.control.Submit(asked, timeout=60)
        return [each.job for each in reply.jobs]

    async def show(self, number: int) -> Any:
        asked = c.ShowRequest(filter=c.Filter(jobs=[number]))
        return (await self.control.Show(asked, timeout=60)).jobs[0]

    async def state(self, number: int) -> str:
        return (await self.show(number)).job.state

    async def queue(self, **words: Any) -> tuple[list[Any], list[Any], Any]:
        jobs, folded, summary = [], [], None
        unfold = words.pop("unfold", False)
        words.setdefault("all_users", True)
        asked = c.QueueRequest(filter=c.Filter(**words), unfold=unfold)
        async for page in self.control.Queue(asked, timeout=60):
            jobs += page.jobs
            folded += page.folded
            if page.HasField("summary"):
                summary = page.summary
        return jobs, folded, summary

    async def act(self, action: int, *jobs: int, **more: Any) -> Any:
        asked = c.ActRequest(action=action, filter=c.Filter(jobs=jobs), **more)
        return await self.control.Act(asked, timeout=60)

    async def close(self) -> None:
        await self.channel.close()


def job(*argv: str, **fields: Any) -> c.JobRequest:
    return c.JobRequest(name=fields.pop("name", "train"), argv=argv or ("true",), **fields)


class Running:
    """A daemon, its address, and clients that are closed with it."""

    def __init__(self, settings: Settings, file: Path | None = None) -> None:
        self.daemon = Daemon(settings, file=file, insecure_loopback=True)
        self._callers: list[Caller] = []

    async def __aenter__(self) -> Running:
        await self.daemon.start()
        self.target = f"127.0.0.1:{self.daemon.ports[0]}"
        await eventually(lambda: self.daemon.driver.leading)
        return self

    async def __aexit__(self, *error: object) -> None:
        for caller in self._callers:
            await caller.close()
        await self.daemon.stop()

    def caller(self, user: str = "ann", uid: int = 1001) -> Caller:
        caller = Caller(self.target, user, uid)
        self._callers.append(caller)
        return caller
