"""An opportunistic training beside a guaranteed one, from the command line to its pauses."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
PROGRAM = Path(__file__).with_name("paced_program.py")
STEP_S = 0.05
LIMIT = re.compile(r"limit job=(\d+) share=(\d+)")


class Sharing(LocalCluster):
    """A node of one GPU under AntMan, whose coordinator looks a few times a second."""

    def _agent_tables(self, name: str) -> dict[str, Mapping[str, Any]]:
        policy = {
            "name": "antman-node", "tick_s": 0.25, "settle_s": 1.5, "idle_s": 60.0,
            "alone_steps": 20, "calm": 0.2, "slow": 0.5,
        }  # fmt: skip
        return {**super()._agent_tables(name), "node_policy": policy}

    def train(self, name: str, *words: str) -> int:
        """Submit a training as a user would."""
        answer = self.cli(
            "submit", "--parsable", "-J", name, "-o", f"{self.out}/%j.out", "--set", "gpu_util=40",
            *words, "--", sys.executable, str(PROGRAM), str(STEP_S), str(self.times(name)),
            str(self.slow(name)),
        )  # fmt: skip
        return int(answer.split()[-1])

    def times(self, name: str) -> Path:
        return self.folder / f"{name}.times"

    def slow(self, name: str) -> Path:
        return self.folder / f"{name}.slow"

    def steps(self, name: str) -> list[float]:
        """Seconds of each step so far."""
        file = self.times(name)
        text = file.read_text() if file.exists() else ""
        return [float(line.split()[1]) for line in text.splitlines() if line.count(" ") == 1]

    def shares(self, job: int) -> list[int]:
        """What the coordinator has decided for a job, in order."""
        found = LIMIT.findall(self.log("n1", 1_000_000))
        return [int(share) for each, share in found if int(each) == job]


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    with Sharing(nodes=1, gpus="1:v100", round={"policy": "antman"}) as running:
        yield running


def test_an_opportunistic_training_yields_to_the_owner_of_its_gpu(sharing: Sharing) -> None:
    """It stands still until the owner's time is known, grows, shrinks, and gets all at the end."""
    opportunistic = sharing.train("opportunistic", "--opportunistic")
    sharing.until(opportunistic, "RUNNING")
    eventually("it works alone", lambda: len(sharing.steps("opportunistic")) > 5)
    owner = sharing.train("owner")
    sharing.until(owner, "RUNNING")
    assert sharing.job(opportunistic).state == "RUNNING"
    eventually("it yields", lambda: 0 in sharing.shares(opportunistic))
    eventually("it goes on", lambda: max(sharing.shares(opportunistic)[2:], default=0) >= 10)

    sharing.kill("n1")
    decided = len(sharing.shares(opportunistic))
    before = sharing.shares(opportunistic)[-1]
    sharing.start_agent("n1")
    sharing.wait_until_up()
    eventually("it grows on", lambda: len(sharing.shares(opportunistic)) > decided)
    assert sharing.shares(opportunistic)[decided] in (before + 5, before // 2), (
        "not from the beginning"
    )

    sharing.slow("owner").touch()  # whatever slows the owner, the others pay for it
    eventually("it shrinks to nothing", lambda: sharing.shares(opportunistic)[-1] == 0)
    eventually("it has stopped", lambda: _stands(sharing, "opportunistic"))
    sharing.slow("owner").unlink()

    sharing.slow("owner").with_name("owner.slow.end").touch()
    sharing.until(owner, "COMPLETED")
    eventually("all is its own", lambda: sharing.shares(opportunistic)[-1] == 100)
    steps = len(sharing.steps("opportunistic"))
    eventually("it works", lambda: len(sharing.steps("opportunistic")) > steps + 5)
    assert sharing.job(opportunistic).run == 1


def _stands(sharing: Sharing, name: str) -> bool:
    """Has a training done no step for a second, some twenty times as long as one takes?"""
    return time.time() - sharing.times(name).stat().st_mtime > 1.0
