"""CPU time of DL2: `python benchmarks/learned_sizes.py [--check]`.

What a network takes to divide the GPUs of a round (20 jobs in its window), one decision after the
other; what the five baselines of the slot world take for a trace; and, where PyTorch is there, what
500 updates take with their five validations, in a world of 48 nodes and 60 jobs.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks.measure import heading
from dlsched.policies.learning.network import Network
from dlsched.policies.scheduling.dl2.window import FEATURES, SCHEMA, Asked, Window, divided
from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import KINDS, SlotJobs, drawn_jobs
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import Conditions, SlotWorld, run_slots

PLACES, MOST = 20, 32
SIZES = ((20, 64), (80, 256), (400, 4096))
MOST_US, MOST_TRAINING_S = 200.0, 30.0  # a decision; a training


def decision_us(jobs: int, gpus: int) -> float:
    """Print what a round takes; returns µs a decision."""
    rng = np.random.default_rng(0)
    speed = np.arange(MOST + 1) ** rng.uniform(0.4, 1.0, (jobs, 1))
    least, most = np.ones(jobs, np.int64), np.full(jobs, MOST)
    age, left = np.arange(jobs, dtype=float), rng.uniform(size=jobs)
    weights = [
        rng.normal(0, 0.1, shape).astype(np.float32)
        for shape in ((len(FEATURES) * PLACES, 32 * PLACES), (32 * PLACES, PLACES + 1))
    ]
    biases = [np.zeros(weight.shape[1], np.float32) for weight in weights]
    biases[-1][-1] = -1e3  # it never ends before all are given
    network = Network("made", SCHEMA, weights, biases)
    window = Window(Asked(age, left, left * 50, least, most, speed), gpus, PLACES)
    began = time.process_time()
    count = len(divided(window, network, rng.random))
    took = time.process_time() - began
    print(f"{jobs} jobs, {gpus} GPUs: {count} decisions, {took * 1e3:.1f} CPU-ms")
    return took / count * 1e6


def traces() -> tuple[list[SlotJobs], SpeedSurface]:
    """Traces of 60 jobs, and speeds that grow with the root of servers and workers."""
    numbers = np.arange(18, dtype=np.float64)
    table = 30 * np.sqrt(numbers[:, None] * numbers) / (1 + 0.1 * (numbers[:, None] + numbers))
    rng = np.random.RandomState(9973)
    made = [drawn_jobs(60, arrivals=3, most_epochs=4000, rng=rng) for _ in range(24)]
    return made, SpeedSurface({kind.model: table for kind in KINDS})


def training_s(made: list[SlotJobs], speeds: SpeedSurface) -> float:
    """Seconds of CPU that a training takes."""
    import torch  # noqa: PLC0415 - an extra

    from simulate.learner.session import Session, TrainingSettings  # noqa: PLC0415
    from simulate.learner.worlds import SlotTraces  # noqa: PLC0415

    torch.set_num_threads(1)
    world = SlotTraces(made[4:], made[:4], speeds, Conditions(48))
    began = time.process_time()
    Session(world, TrainingSettings(updates=500, every=125)).run()
    return time.process_time() - began


def main() -> int:
    """Measure, and return the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="exit 1 over the budgets")
    check = arguments.parse_args().check
    heading()
    good = max([decision_us(*size) for size in SIZES]) <= MOST_US
    made, speeds = traces()
    for name, divide in BASELINES.items():
        began = time.process_time()
        run_slots(SlotWorld(made[0], speeds, Conditions(48)), divide)
        print(f"{name}, a trace in slots: {(time.process_time() - began) * 1e3:.0f} CPU-ms")
    if importlib.util.find_spec("torch") is not None:
        took = training_s(made, speeds)
        print(f"500 updates: {took:.1f} CPU-s")
        good = good and took <= MOST_TRAINING_S
    return 0 if good or not check else 1


if __name__ == "__main__":
    sys.exit(main())
