"""A Dask cluster on loopback: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STARTS_WITHIN_S = 120


@contextmanager
def dask_cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """Start one in a folder of its own; gives HOST:PORT."""
    distributed = pytest.importorskip("distributed")
    told = folder / "scheduler.json"
    started = [
        _started(
            folder, "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", told
        )
    ]
    try:
        until = time.monotonic() + STARTS_WITHIN_S
        while not (told.exists() and told.read_text().strip()):
            assert time.monotonic() < until, "the scheduler does not come up"
            time.sleep(0.05)
        address = json.loads(told.read_text())["address"]
        started += [
            _started(
                folder, "dask_worker", address, "--no-nanny", "--nthreads", "1",
                "--local-directory", folder,
            )
            for _ in range(workers)
        ]  # fmt: skip
        with distributed.Client(address) as client:
            client.wait_for_workers(workers, timeout=STARTS_WITHIN_S)
        yield address.removeprefix("tcp://")
    finally:
        for process in reversed(started):  # a worker without a scheduler does not end soon
            process.terminate()
            process.wait()


def _started(folder: Path, program: str, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard"]
    return subprocess.Popen(
        [*command, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
