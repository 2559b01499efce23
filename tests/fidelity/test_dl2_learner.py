"""DL2's learner on the validation sets of its sheet: well below DRF, from a seed."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from simulate.learner.worlds import SlotTraces
from simulate.worlds.slots.jobs import drawn_jobs
from simulate.worlds.slots.speeds import read_speeds
from simulate.worlds.slots.world import Conditions

if TYPE_CHECKING:
    from simulate.learner.session import Session  # imports torch

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
SPEEDS = ROOT / "dl2" / "speed_records.csv.gz"
pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not SPEEDS.exists(), reason=f"{SPEEDS} is not there (set DLSCHED_DATA)"),
]


def trained(traces_seed: int, seed: int, warmup: Any, updates: int) -> Session:
    torch = pytest.importorskip("torch")
    module = import_module("simulate.learner.session")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rng = np.random.RandomState(traces_seed)
    traces = [drawn_jobs(60, arrivals=3, most_epochs=4000, rng=rng) for _ in range(24)]
    world = SlotTraces(traces[4:], traces[:4], read_speeds(SPEEDS, 17), Conditions(48), seed=seed)
    session: Session = module.Session(
        world, module.TrainingSettings(seed=seed, warmup=warmup, updates=updates)
    )
    session.run()
    torch.set_num_threads(before)
    return session


def gains(session: Session) -> dict[tuple[str, int], float]:
    return {(p.phase, p.updates): p.verdict.jct / session.baseline.jct - 1 for p in session.curve}


def test_from_scratch_the_best_network_is_at_least_20_percent_below_drf() -> None:
    session = trained(9973, 0, "none", 250)
    assert session.baseline.jct == pytest.approx(5.064, abs=6e-4)
    assert min(gains(session).values()) <= -0.20


@pytest.mark.exhaustive
def test_three_seeds_are_where_the_sheet_wants_them() -> None:
    warm = [gains(trained(9973, seed, "sl", 1000)) for seed in range(3)]
    cold = [gains(trained(9973, seed, "none", 1000)) for seed in range(3)]
    assert np.mean([each["imitation", 200] for each in warm]) == pytest.approx(0, abs=0.08)
    assert np.mean([each["reward", 1000] for each in warm]) <= -0.12
    assert np.mean([each["reward", 1000] for each in cold]) <= -0.25


@pytest.mark.exhaustive
@pytest.mark.parametrize("warmup", ["sl", "none"])
def test_the_best_network_of_the_second_set_is_below_drf_too(warmup: str) -> None:
    best = [min(gains(trained(11, seed, warmup, 1000)).values()) for seed in range(3)]
    assert np.mean(best) <= -0.20
