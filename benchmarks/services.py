"""CPU time of services: `python benchmarks/services.py`.

The number of replicas at a thousand of them; a replay of a week beside a service, and without; and
what the leader of a live service spends on one request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.policies.services.service_times import Lognormal
from dlsched.policies.services.sizing import Sla, fewest_replicas
from dlsched.service.frames import read_frame, write_frame
from dlsched.service.http_server import HttpServer
from dlsched.service.request_queue import RequestQueue, Slot
from simulate.replay import replay
from simulate.services.description import Requests, Service
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

TIME, SLA = Lognormal(mu=-2.3, sigma=0.4), Sla(within_s=0.5, share=0.99)
DAY_S, JOBS, REQUESTS, CLIENTS, REPLICAS = 86_400.0, 2000, 4000, 16, 8
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def trace() -> Trace:
    """Jobs of a week."""
    rng = np.random.default_rng(0)
    empty = np.array([""] * JOBS, np.object_)
    return Trace(
        name="week",
        source="generated",
        job_id=np.array([str(k) for k in range(JOBS)], np.object_),
        submit_time=np.sort(rng.uniform(0, 7 * DAY_S, JOBS)),
        num_gpus=rng.choice([1.0, 2.0, 4.0, 8.0], JOBS),
        duration=rng.exponential(3000.0, JOBS) + 60,
        user=empty,
        vc=empty,
        status=empty,
        columns={},
    )


def day() -> Requests:
    """A rate for each ten minutes of a day."""
    times = np.arange(0, DAY_S, 600.0)
    rates = 40 + 35 * np.sin(2 * np.pi * times / DAY_S)
    return Requests(times=tuple(times.tolist()), rates=tuple(rates.tolist()), period_s=DAY_S)


async def forward() -> float:
    """Requests through the queue to replicas that answer at once; CPU seconds of all of it."""
    numbers = frozenset(range(1, REPLICAS + 1))
    queue = RequestQueue(
        most=1000,
        longest_s=60.0,
        usable=lambda: numbers,
        used=lambda number: None,
        served=lambda seconds: None,
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slot = Slot((await reader.readexactly(1))[0], reader, writer)
        try:
            await queue.serve(slot)
        except asyncio.CancelledError:  # the end of the measurement
            return
        finally:
            writer.close()

    async def replica(port: int, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes([number]))
        try:
            while True:
                await read_frame(reader)
                await write_frame(writer, ANSWER)
        finally:
            writer.close()

    async def client(port: int) -> None:
        for _ in range(REQUESTS // CLIENTS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            if await reader.read() != ANSWER:
                raise RuntimeError("another answer")
            writer.close()

    inner = await asyncio.start_server(serve, "127.0.0.1", 0)
    outer = await asyncio.start_server(HttpServer(queue.ask).serve, "127.0.0.1", 0)
    ports = [each.sockets[0].getsockname()[1] for each in (inner, outer)]
    replicas = [asyncio.create_task(replica(ports[0], number)) for number in sorted(numbers)]
    start = time.process_time()
    await asyncio.gather(*(client(ports[1]) for _ in range(CLIENTS)))
    took = time.process_time() - start
    for each in replicas:
        each.cancel()
    await asyncio.gather(*replicas, return_exceptions=True)
    inner.close()
    outer.close()
    return took


def main() -> int:
    """Measure and print."""
    print(heading())
    start = time.process_time()
    sizing = fewest_replicas(9_000.0, TIME, SLA)
    took = time.process_time() - start
    print(f"sizing: {sizing.replicas} replicas for 9,000 requests/s: {took * 1000:.1f} CPU-ms")
    jobs, cluster = trace(), parse_cluster_spec("8x8:v100")
    service = Service(name="day", sla=SLA, service_time=TIME, requests=day(), most=20)
    for services in ((), (service,)):
        settings = RunSettings(policy="srtf", record=False)
        start = time.process_time()
        found = replay(jobs, cluster, settings, services=services)
        took = time.process_time() - start
        told = found.summary.get("services")
        lent = "" if told is None else f", {told['lent_gpu_hours']:.0f} GPU-hours lent"
        beside = "with a service" if services else "alone"
        print(f"replay: {JOBS} jobs {beside}{lent}: {took:.2f} CPU-s")
    took = asyncio.run(forward())
    print(f"leader: {REQUESTS} requests, clients and replicas too: {took / REQUESTS * 1e3:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
