"""A training from its beginning to its end, in both worlds, in seconds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dlsched.composition.network_files import network_bytes
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.learning.network import Network
from simulate.learner.replays import ReplayedTraces
from simulate.learner.worlds import Rates, SlotTraces, Verdict
from simulate.settings import RunSettings
from simulate.worlds.slots.jobs import KINDS, drawn_jobs
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import Conditions

if TYPE_CHECKING:  # imports torch, which takes seconds
    from simulate.learner.session import Session

QUICK = Rates(reward=1e-3, batch=32, memory=256)


@pytest.fixture(autouse=True)
def torch() -> Any:
    """PyTorch on one thread."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(before)


def slots(seed: int = 0) -> SlotTraces:
    numbers = np.arange(18, dtype=np.float64)
    table = 10 * np.sqrt(numbers[:, None] * numbers) / (1 + 0.1 * (numbers[:, None] + numbers))
    surface = SpeedSurface({kind.model: table for kind in KINDS})
    rng = np.random.RandomState(seed)
    traces = [drawn_jobs(9, arrivals=3, most_epochs=200.0, rng=rng) for _ in range(4)]
    return SlotTraces(traces[2:], traces[:2], surface, Conditions(8), window=6, seed=seed)


def replays(lab: Any) -> ReplayedTraces:
    curves = {"good": [1.0, 1.9, 2.8, 3.6], "poor": [1.0, 1.1, 1.15, 1.17]}
    table = ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(name), rate=rate)
            for name, curve in curves.items()
            for k, rate in enumerate(curve, 1)
        ]
    )

    def trace(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return lab.trace(
            [(200 * k, 1, 3000) for k in range(12)],
            model=rng.choice(list(curves), 12).tolist(),
            min_gpus=[1] * 12,
            max_gpus=[4] * 12,
            total_iterations=rng.integers(1000, 9000, 12).astype(float).tolist(),
        )

    settings = RunSettings(round_s=600.0)
    cluster = lab.cluster("4x4:v100")
    return ReplayedTraces([trace(1), trace(2)], [trace(3)], cluster, settings, table, window=8)


def session_of(world: Any, **changed: Any) -> Session:
    """A short training in a world, before its beginning."""
    module = import_module("simulate.learner.session")
    usual: dict[str, Any] = {"updates": 12, "imitations": 4, "every": 4, "rates": QUICK}
    made: Session = module.Session(world, module.TrainingSettings(**(usual | changed)))
    return made


def points(session: Session) -> list[tuple[str, int, Verdict]]:
    return [(point.phase, point.updates, point.verdict) for point in session.curve]


@pytest.mark.parametrize("warmup", [pytest.param("sl", marks=pytest.mark.slow), "none"])
def test_the_curve_has_all_validations_and_the_best_network_is_kept(warmup: Any) -> None:
    world = slots()
    session = session_of(world, warmup=warmup)
    session.run()
    phases = [(point.phase, point.updates) for point in session.curve]
    warm = [("imitation", 4)] if warmup == "sl" else []
    assert phases == [("start", 0), *warm, *(("reward", k) for k in (4, 8, 12))]
    assert session.best is not None
    assert world.validate(session.best).jct == min(point.verdict.jct for point in session.curve)
    assert session.best.settings["warmup"] == warmup


def test_a_training_that_was_interrupted_goes_on_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("simulate.learner.session.SAVE_EVERY", 3)
    whole, states = session_of(slots(), warmup="sl", updates=20), list[bytes]()
    whole.run(on_save=lambda: states.append(whole.state_bytes()))
    assert whole.best is not None
    assert len(states) >= 3
    for state in states[:2]:
        rest = session_of(slots(), warmup="sl", updates=20)
        rest.load(state, "file.state")
        assert len(rest.curve) < len(whole.curve)
        rest.run()
        assert points(rest) == points(whole)
        assert rest.best is not None
        assert network_bytes(rest.best) == network_bytes(whole.best)


def test_states_of_other_trainings_are_refused_with_the_difference() -> None:
    session = session_of(slots(), updates=1)
    session.run()
    content = session.state_bytes()
    for other, message in (
        (session_of(slots(), seed=5), r"has seed 0, not 5"),
        (session_of(slots(), every=3), r"has every 4, not 3"),
        (session_of(slots(1)), r"has baseline on its traces .* not"),
    ):
        with pytest.raises(BadInput, match=message):
            other.load(content, "file.state")
    with pytest.raises(BadInput, match=r"file\.state: is no state of a training"):
        session.load(b"something", "file.state")


@pytest.mark.slow
def test_a_network_learns_which_jobs_scale_in_replays(lab: Any) -> None:
    world = replays(lab)
    session = session_of(world, updates=150, imitations=60, every=50)
    session.run()
    assert session.best is not None
    start, best = session.curve[0].verdict.jct, world.validate(session.best).jct
    assert best < start
    assert best <= session.baseline.jct * 1.01
    assert session.best.outputs == 9


@pytest.mark.parametrize(("net", "sizes"), [("Net", (12, (5, 4), 3)), ("SharedNet", (4, (5,), 3))])
def test_plain_layers_compute_what_the_trained_ones_do(torch: Any, net: str, sizes: Any) -> None:
    made = getattr(import_module("simulate.learner.learner"), net)(*sizes)
    torch.manual_seed(1)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    inputs = torch.randn(7, 12)
    plain = Network("", "", *made.plain())
    np.testing.assert_allclose(plain(inputs.numpy()), made(inputs).detach().numpy(), rtol=1e-4)
