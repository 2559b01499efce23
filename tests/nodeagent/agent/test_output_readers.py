"""How many outputs are read at once: all by one process."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripted_leader import Work, eventually

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent import user_files
from dlsched.nodeagent.agent.user_files import OUTPUTS, OUTPUTS_OF_ONE, UserFiles
from dlsched.protocol.messages import Phase
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import node_pb2


def test_a_user_s_readers_and_all_together_are_bounded() -> None:
    readers = UserFiles()
    with readers.one(1, "ann"):
        pass  # ended: it does not count
    held = [readers.one(uid, "") for uid in range(OUTPUTS // OUTPUTS_OF_ONE) for _ in range(16)]
    for each in held:
        each.__enter__()
    with pytest.raises(DlschedError, match="16 outputs of ann are read"), readers.one(1, "ann"):
        pass
    with pytest.raises(DlschedError, match="128 outputs are read"), readers.one(99, "eve"):
        pass
    held[0].__exit__(None, None, None)
    with readers.one(99, "eve"):
        pass


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_file_server_that_stands_still_or_is_gone_is_replaced(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "TAKES_S", 2.0)
    output = tmp_path / "out"
    output.write_bytes(b"what was written\n")

    async def work() -> None:
        files = UserFiles()

        async def read() -> bytes:
            me = {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups()}
            about = {"path": str(output), "tail": -1, "follow": False, "label": ""}
            content, order = await files.ask("read", **me, **about)
            found = await asyncio.wait_for(content.read(), 60)
            order.close()
            return found

        wanted = b"ready\nwhat was written\n"
        assert await read() == wanted
        first = files._process
        assert first is not None
        os.kill(first.pid, how)
        assert await asyncio.gather(*[read() for _ in range(5)]) == [wanted] * 5
        # 255: `kill` of one that is dead has seen its end before asyncio could
        assert await first.wait() in (-signal.SIGKILL, 255)
        second = files._process
        assert await read() == wanted
        assert files._process is second  # one is enough for all five
        await files.close()

    asyncio.run(work())


@pytest.mark.parametrize("left", [0, 1, 2])
def test_an_agent_without_descriptors_says_so(left: int) -> None:
    async def work() -> None:
        files = UserFiles()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
        try:
            with pytest.raises(DlschedError, match="cannot be asked: Too many open files"):
                await files.ask("read", uid=0, gid=0, groups=[])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await files.close()

    asyncio.run(work())


def test_followers_beyond_the_bound_are_refused_until_another_one_leaves(calm: Any) -> None:
    output = calm.folder / "out"
    script = "echo begun; exec sleep 600"
    job = calm.leader.submit(Work(argv=("/bin/sh", "-c", script), output=str(output)))
    calm.leader.place(job, ("n1",))
    calm.leader.wait_phase("n1", Phase.RUNNING)
    eventually(lambda: output.exists() and output.stat().st_size > 0, "it writes")
    request = node_pb2.OutputRequest(
        key=to_wire(calm.leader.run_of(job).key), tail_lines=-1, follow=True
    )

    async def follow() -> None:
        def call() -> Any:
            role = (("dlsched-role", "dlsched://daemon"),)
            return calm.leader.agent("n1").Output(request, timeout=60, metadata=role)

        following = [call() for _ in range(OUTPUTS_OF_ONE)]
        assert {(await each.read()).data for each in following} == {b"begun\n"}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call().read()
        assert "16 outputs of" in (refused.value.details() or "")
        following.pop().cancel()
        while True:  # the agent hears of it in a moment
            try:
                assert (await call().read()).data == b"begun\n"
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)
        for each in following:
            each.cancel()

    calm.leader._in_loop(follow())
