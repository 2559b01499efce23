"""What a frequent command loads when a daemon on this machine answers it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.local_calls import LocalCalls
from dlsched.rpc.local_frames import calls_path
from dlsched.rpc.server import ServerTrust, new_interceptor
from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server

# each costs a quarter of Python's start or more
HEAVY = {"typer", "dataclasses", "inspect", "pathlib", "google.protobuf", "grpc", "asyncio", "ssl"}
JOB = pb.JobView(job=7, name="train", state="PENDING", reason="Resources", gpus=8)


class Control(ControlServicer):
    """Answers as a daemon with one job."""

    async def Submit(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.SubmitReply(jobs=[pb.Submitted(job=7)])

    async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield pb.QueuePage(jobs=[JOB], summary=pb.QueueSummary())

    async def Show(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ShowReply(jobs=[pb.JobDetail(job=JOB)], total=1)

    async def Act(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ActReply(done=["7"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a daemon's local socket."""
    path = str(tmp_path_factory.mktemp("d") / "daemon.sock")
    ready, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        interceptor = new_interceptor(ServerTrust(insecure_loopback=False))
        calls = LocalCalls(Path(calls_path(path)), interceptor)
        add_ControlServicer_to_server(Control(), calls)
        await calls.start()
        loops.append(asyncio.get_running_loop())
        ready.set()
        await over.wait()
        await calls.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    yield f"unix:{path}"
    loops[0].call_soon_threadsafe(over.set)
    thread.join()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["submit", "-G", "1", "--", "true"], "Submitted job 7"),
        (["queue"], "7  train"),
        (["show", "7"], "job 7  train"),
        (["cancel", "7"], "cancelled 1 job"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_frequent_command_loads_nothing_heavy(daemon: str, words: list[str], line: str):
    script = (
        "import sys\n"
        "from dlsched.cli.main import run\n"
        "try:\n    run()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, words[0], "--daemon", daemon, *words[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert line in done.stdout
    assert not set(done.stderr.split()) & HEAVY
