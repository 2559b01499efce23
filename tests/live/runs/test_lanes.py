"""Jobs on one GPU take turns in lanes of its memory: real daemon, agents and PyTorch trainings."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]

PROGRAM = Path(__file__).with_name("lane_program.py")
STEP_BYTES = 160 * 1024**2
ROOM = 20 * 1024**2  # that a training holds beside PyTorch
PATIENCE_S = 3.0


def bytes_of_pytorch() -> int:
    """What a process holds that has loaded PyTorch, on this machine."""
    told = subprocess.run(
        [sys.executable, "-c", "import torch; print(open('/proc/self/status').read())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"VmRSS:\s+(\d+) kB", told)
    assert found is not None
    return int(found[1]) * 1024


class LaneCluster(LocalCluster):
    """Two nodes of one GPU: n1 has memory for one step at a time, n2 for several."""

    def __init__(self) -> None:
        super().__init__(nodes=2, gpus=("1:v100", "1:a100"))
        held = bytes_of_pytorch() + ROOM
        self.budget = {
            "n1": int(1.05 * (2 * held + STEP_BYTES)) + ROOM,
            "n2": 4 * (held + STEP_BYTES),
        }
        self.count = 0

    def _agent_tables(self, name: str) -> dict[str, Mapping[str, Any]]:
        turns = {"memory_gb": self.budget[name] / 1e9, "patience_s": PATIENCE_S, "order": "pack"}
        return {**super()._agent_tables(name), "turns": turns}

    def train(self, gpu_type: str, record: Path, name: str, steps: int, **how: float) -> int:
        """Submit a training on the command line; returns its number."""
        words = [name, steps, STEP_BYTES, how.get("least_s", 0.0), int(how.get("hangs_at", 0))]
        told = self.cli(
            "submit", "--gpus", f"{gpu_type}:1", "--share", "0.4", "--output", f"{self.out}/%j.out",
            "--export", f"ALL,LANE_RECORD={record}",
            "--wrap", "exec " + shlex.join([sys.executable, str(PROGRAM), *map(str, words)]),
        )  # fmt: skip
        return int(re.findall(r"\d+", told)[-1])


@pytest.fixture(scope="module")
def lanes() -> Iterator[LaneCluster]:
    with LaneCluster() as running:
        yield running


@pytest.fixture
def record(lanes: LaneCluster) -> Path:
    lanes.count += 1
    return lanes.folder / f"record-{lanes.count}"


@dataclass
class Step:
    name: str
    number: int
    begins: float
    ends: float
    held: int
    most: int


def steps_of(record: Path) -> list[Step]:
    """The steps that have ended, in order of their begin."""
    found: dict[tuple[str, int], Step] = {}
    for line in record.read_text().splitlines() if record.exists() else []:
        name, what, number, at, memory = line.split()
        key = name, int(number)
        if what == "begins":
            found[key] = Step(name, int(number), float(at), float("inf"), int(memory), 0)
        elif what == "ends":
            found[key].ends, found[key].most = float(at), int(memory)
    return sorted((each for each in found.values() if each.most), key=lambda each: each.begins)


def overlapping(steps: list[Step]) -> list[tuple[Step, Step]]:
    return [
        (one, other)
        for place, one in enumerate(steps)
        for other in steps[place + 1 :]
        if other.begins < one.ends
    ]


def most_at_once(steps: list[Step]) -> int:
    """The most memory at once of two trainings: the one in a step, the other between two steps."""
    names = sorted({each.name for each in steps})
    most = 0
    for step in steps:
        others = [each for each in names if each != step.name]
        between = [
            max((e.held for e in steps if e.name == other and e.begins < step.ends), default=0)
            for other in others
        ]
        most = max(most, step.most + sum(between))
    return most


def first(steps: list[Step], name: str) -> float:
    return min(each.begins for each in steps if each.name == name)


def test_steps_that_fit_together_run_at_the_same_time(lanes: LaneCluster, record: Path) -> None:
    jobs = [lanes.train("a100", record, name, 10, least_s=0.1) for name in ("one", "two")]
    for job in jobs:
        lanes.until(job, "COMPLETED")
    steps = steps_of(record)
    assert len(steps) == 20
    assert overlapping(steps)
    alone = [each for each in steps if each.number == 1]
    assert not [pair for pair in overlapping(steps) if pair[0] in alone or pair[1] in alone]


def test_a_job_that_hangs_in_its_turn_and_one_that_is_killed_hold_up_no_other(
    lanes: LaneCluster, record: Path
) -> None:
    hangs = lanes.train("v100", record, "hangs", 100, hangs_at=5)
    eventually("it hangs", lambda: "hangs hangs" in read(record))
    goes_on = lanes.train("v100", record, "goes-on", 8)
    lanes.until(goes_on, "COMPLETED")
    dies = lanes.train("v100", record, "dies", 100, hangs_at=3)
    lanes.cli("cancel", str(hangs))
    lanes.until(hangs, "CANCELLED")
    eventually("it hangs", lambda: "dies hangs" in read(record))
    after = lanes.train("v100", record, "after", 8)
    eventually("it runs", lambda: lanes.job(after).state == "RUNNING")
    [process] = lanes.remaining("dies")
    os.kill(process.pid, signal.SIGKILL)
    lanes.until(dies, "FAILED")
    lanes.until(after, "COMPLETED")


def read(record: Path) -> str:
    return record.read_text() if record.exists() else ""


def test_steps_that_do_not_fit_together_run_one_at_a_time_also_while_the_agent_is_away(
    lanes: LaneCluster, record: Path
) -> None:
    jobs = [lanes.train("v100", record, name, 40, least_s=0.05) for name in ("one", "two")]

    def done(name: str) -> int:
        return sum(each.name == name for each in steps_of(record))

    eventually("both train", lambda: done("one") > 3 and done("two") > 3)
    lanes.kill("n1")
    before = done("one"), done("two")
    eventually(
        "both go on without an agent",
        lambda: done("one") > before[0] + 3 and done("two") > before[1] + 3,
    )
    lanes.start_agent("n1")
    lanes.wait_until_up()
    for job in jobs:
        lanes.until(job, "COMPLETED")
    steps = steps_of(record)
    assert len(steps) == 80
    assert overlapping(steps) == []
    assert most_at_once(steps) <= lanes.budget["n1"]
    both = [each for each in steps if each.begins > max(first(steps, "one"), first(steps, "two"))]
    turns = "".join(each.name[0] for each in both)
    assert "otot" in turns or "toto" in turns, "they have not taken turns"
    assert all(lanes.job(job).run == 1 for job in jobs)
