"""Whatever a zygote does, a run gets its own keeper or none, and never two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.nodeagent.agent.keepers import spawning, zygote_link
from dlsched.nodeagent.agent.keepers.spawning import CannotStartKeeper
from dlsched.nodeagent.agent.keepers.zygote_link import ZygoteLink
from dlsched.nodeagent.host import processes
from dlsched.nodeagent.keeper import run_files
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec, LaunchFacts, RunFacts
from dlsched.protocol import messages as m

SCRIPT = Path(__file__).with_name("misbehaving_zygote.py")
FAULTS = (
    "none",
    "dies",  # before it forks
    "stops",
    "records-then-dies",
    "records-then-stops",
    "unrecorded-then-dies",
    "unrecorded-then-stops",
    "answers-another",
    "answers-twice",
    "gives-no-descriptor",
)
NODE, GPU = m.NodeName("n1"), m.GpuId("GPU-0")


class Node:
    """The folders of one agent, and the keepers that its zygotes have forked."""

    def __init__(self, folder: Path, faults: list[str]) -> None:
        self.plan, self.log = folder / "plan", folder / "log"
        self.state, self.run = folder / "state", folder / "run"
        run_files.make_folders(str(self.state), str(self.run))
        self.plan.write_text(" ".join(faults))
        self.log.touch()
        self.command = (sys.executable, "-S", str(SCRIPT), str(self.plan), str(self.log))

    def spec(self, job: int) -> KeeperSpec:
        desired = m.DesiredRun(
            key=m.RunKey(m.JobId(job), m.RunNumber(1), m.RunId(secrets.token_hex(4))),
            want=m.Want.RUNNING,
            epoch=m.Epoch(1),
            boot_id=m.BootId("b"),
            gpus=(GPU,),
            layout=(m.Share(node=NODE, gpus=(GPU,)),),
        )
        return KeeperSpec(
            node=NODE,
            desired=desired,
            launch=LaunchFacts(user="", uid=os.getuid(), gid=os.getgid()),
            facts=RunFacts(uid=os.getuid(), gid=os.getgid()),
            state_dir=str(self.state),
            run_dir=str(self.run),
            gpu_numbers={GPU: 0},
            cpus=1,
        )

    def keepers(self, spec: KeeperSpec) -> list[int]:
        """The live keepers of a run."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        pids = [int(pid) for run_id, pid in lines if run_id == spec.desired.key.run_id]
        return [pid for pid in pids if _is_alive(pid)]

    def close(self) -> None:
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[1]), signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    found = processes.stat(pid)
    return found is not None and found.state not in "ZX"


@pytest.fixture(scope="module", autouse=True)
def _short_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zygote_link, "_ANSWER_S", 1.0)
        patch.setattr(spawning, "_PATIENCE_S", 0.5)
        yield


async def _start(node: Node, link: ZygoteLink, spec: KeeperSpec) -> bool:
    """Start a run; return whether it has a keeper, which is its own and the only one."""
    try:
        started = await link.start_keeper(spec)
    except CannotStartKeeper:
        assert node.keepers(spec) == []
        return False
    os.close(started.process_fd)
    if started.connection is not None:
        with started.connection as connection:
            connection.setblocking(False)
            said = await asyncio.get_running_loop().sock_recv(connection, 100)
        assert said.decode() == spec.desired.key.run_id
    assert node.keepers(spec) == [started.pid]
    return True


async def _play(node: Node, faults: int) -> None:
    link = ZygoteLink(str(node.run))
    await link.begin()
    try:
        specs = [node.spec(job) for job in range(1, faults + 2)]
        await asyncio.gather(*(_start(node, link, spec) for spec in specs))
        assert all(len(node.keepers(spec)) <= 1 for spec in specs)
        while node.plan.read_text():
            await _start(node, link, node.spec(100))
        started = [await _start(node, link, node.spec(job)) for job in range(101, 106)]
        assert any(started)  # a machine that is slow can miss the short limits of this test
    finally:
        link.close()


@settings(max_examples=10, deadline=None)
@given(faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3))
def test_a_run_has_its_own_keeper_or_none_whatever_the_zygote_does(faults: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="dls") as folder, pytest.MonkeyPatch.context() as patch:
        node = Node(Path(folder), faults)
        patch.setattr(zygote_link, "ZYGOTE", node.command)
        try:
            asyncio.run(_play(node, len(faults)))
        finally:
            node.close()


def test_another_agent_ends_the_zygote_and_the_keeper_of_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, ["unrecorded-then-stops"])
    monkeypatch.setattr(zygote_link, "ZYGOTE", node.command)

    async def play() -> None:
        first, second = ZygoteLink(str(node.run)), ZygoteLink(str(node.run))
        await first.begin()
        lost = node.spec(1)
        starting = asyncio.ensure_future(first.start_keeper(lost))
        until = time.monotonic() + 30
        while not node.keepers(lost) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert node.keepers(lost)
        starting.cancel()  # its agent is gone
        await second.begin()
        assert node.keepers(lost) == []
        assert await _start(node, second, node.spec(2))
        for link in (first, second):
            link.close()

    try:
        asyncio.run(play())
    finally:
        node.close()
