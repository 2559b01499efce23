"""What a call of the client costs: `python -m benchmarks.live.client [REPEATS]`.

The verbs are started as a user starts them, and answered by a scripted daemon in this process, so
that nothing but the client is measured: CPU seconds of the children, median of some repeats. Short
calls go over the local socket, by turns with `python -c pass`, of which they are a multiple.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc

from benchmarks.measure import heading
from dlsched.rpc.local_calls import LocalCalls
from dlsched.rpc.local_frames import calls_path
from dlsched.rpc.server import ServerTrust, new_interceptor
from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server

__all__ = ["main"]

MANY = 10_000
PAGE = 500
NOTHING = ("-c", "pass")
SHORT_CALLS = (("submit", "-G", "1", "--", "true"), ("queue",), ("show", "7"), ("cancel", "7"))
MOST = 6.0  # times NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call, and what it may cost in CPU seconds."""

    name: str
    words: tuple[str, ...]
    budget_s: float
    bytes_budget: int | None = None


class Answers(ControlServicer):
    """Takes everything, and lists ten thousand waiting jobs."""

    def Submit(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.SubmitReply(jobs=[pb.Submitted(job=7 + k) for k in range(len(request.jobs))])

    def Queue(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        for first in range(0, MANY, PAGE):
            yield pb.QueuePage(jobs=[_waiting(first + k) for k in range(PAGE)])


class LocalAnswers(ControlServicer):
    """Answers short calls on the local socket."""

    async def Submit(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.SubmitReply(jobs=[pb.Submitted(job=7)])

    async def Queue(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield pb.QueuePage(jobs=[_waiting(k) for k in range(5)], summary=pb.QueueSummary())

    async def Show(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ShowReply(jobs=[pb.JobDetail(job=_waiting(0))], total=1)

    async def Act(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ActReply(done=["7"])


def _waiting(number: int) -> pb.JobView:
    return pb.JobView(
        job=11_151 + number,
        name=f"train-{number % 97}",
        user=f"user{number % 13}",
        vc="research",
        partition="main",
        state="PENDING",
        reason="Resources: 16 of 32 free",
        gpus=8,
        gpu_types=["a100"],
        submitted_at=1_795_242_340.0 + number,
        position=number + 1,
        time_limit_s=86_400.0,
    )


def main() -> int:
    """Print a table; exit 1 when a budget is exceeded."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_ControlServicer_to_server(Answers(), server)  # type: ignore[no-untyped-call]  # generated
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "jobs.csv")
        rows.write_text("command,name,gpus\n" + "".join(f"true,job-{k},1\n" for k in range(MANY)))
        cases = (
            Case(name="--help", words=("--help",), budget_s=0.15),
            Case(name="submit", words=("submit", "-G", "1", "--", "true"), budget_s=0.15),
            Case(name="queue, 10,000, text", words=("queue", "-a"), budget_s=0.8),
            Case(
                name="queue, 10,000, JSON",
                words=("queue", "-a", "--json"),
                budget_s=1.0,
                bytes_budget=8_000_000,
            ),
            Case(name="submit --from, 10,000", words=("submit", "--from", str(rows)), budget_s=2.0),
        )
        heading()
        print(f"Python {sys.version.split()[0]}, typer {version('typer')}, {repeats} repeats")
        print(f"{'call':<24}{'CPU s':>8}{'wall s':>8}{'budget':>8}{'bytes':>12}")
        for case in cases:
            cpu, wall, size = _measured(case, address, repeats)
            over = cpu > case.budget_s or size > (case.bytes_budget or size)
            exceeded |= over
            print(
                f"{case.name:<24}{cpu:>8.3f}{wall:>8.3f}{case.budget_s:>8.2f}{size:>12,}"
                + ("  over" if over else "")
            )
        exceeded |= _short_calls(folder, repeats)
    server.stop(None).wait()
    return int(exceeded)


def _short_calls(folder: str, repeats: int) -> bool:
    """Print the CPU of short calls over the local socket; return whether a budget is exceeded."""
    path, ready = f"{folder}/daemon.sock", threading.Event()

    async def serve() -> None:
        calls = LocalCalls(
            Path(calls_path(path)), new_interceptor(ServerTrust(insecure_loopback=False))
        )
        add_ControlServicer_to_server(LocalAnswers(), calls)  # type: ignore[no-untyped-call]
        await calls.start()
        ready.set()
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ready.wait()
    variables = {**os.environ, "DLSCHED_DAEMON": f"unix:{path}"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed client has its bytecode
    calls = {words: ("-m", "dlsched", *words) for words in SHORT_CALLS}
    spent: dict[tuple[str, ...], list[float]] = {}
    for _ in range(repeats + 1):  # the first one writes the bytecode
        for words in (NOTHING, *calls.values()):
            spent.setdefault(words, []).append(_cpu_s(words, variables))
    nothing = statistics.median(spent[NOTHING][1:])
    print(f"of `python -c pass`, {nothing * 1e3:.0f} ms, over the local socket:")
    exceeded = False
    for words in SHORT_CALLS:
        ratio = statistics.median(spent[calls[words]][1:]) / nothing
        exceeded |= ratio > MOST
        over = "  over" if ratio > MOST else ""
        print(f"{words[0]:<24}{ratio:>8.1f}{MOST:>16.1f}{over}")
    return exceeded


def _cpu_s(words: Sequence[str], variables: dict[str, str]) -> float:
    before = _children_s()
    subprocess.run([sys.executable, *words], capture_output=True, check=True, env=variables)
    return _children_s() - before


def _measured(case: Case, address: str, repeats: int) -> tuple[float, float, int]:
    """Medians of CPU and wall seconds, and the bytes printed."""
    variables = {**os.environ, "DLSCHED_DAEMON": address, "DLSCHED_INSECURE_LOOPBACK": "1"}
    cpu, wall, size = [], [], 0
    for _ in range(repeats):
        before, begun = _children_s(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "dlsched", *case.words],
            capture_output=True,
            check=True,
            env=variables,
        )
        wall.append(time.perf_counter() - begun)
        cpu.append(_children_s() - before)
        size = len(done.stdout)
    return statistics.median(cpu), statistics.median(wall), size


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
