"""MLF-RL: the network imitates MLF-H, is trained the same again, and decides in replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.composition.network_files import network_bytes, read_network
from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network
from dlsched.policies.scheduling.mlfs.choices import INPUTS, SCHEMA, ByNetwork

pytestmark = pytest.mark.slow


def drawn(lab: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    jobs = [
        (float(submit), int(gpus), float(took))
        for submit, gpus, took in zip(
            np.sort(rng.uniform(0, 2500, 20)), rng.choice([1, 2, 4], 20),
            rng.uniform(100, 2000, 20), strict=True,
        )
    ]  # fmt: skip
    return lab.trace(jobs, deadline=rng.uniform(500, 9000, 20))


def trained(lab: Any) -> Any:
    mlfs = pytest.importorskip("simulate.learner.mlfs")
    training = mlfs.MlfsTraining(
        [drawn(lab, 1)], [drawn(lab, 2)], lab.cluster("2x4"), lab.settings("mlfs", round_s=60.0)
    )
    training.run(30, 2, 1, lambda step: None)
    return training


def test_the_network_does_as_mlf_h_and_rewards_never_make_the_kept_one_worse(
    lab: Any, tmp_path: Path
) -> None:
    first, again = trained(lab), trained(lab)
    assert first.agreement() > 0.7
    assert [step.phase for step in first.curve] == ["imitation", "reward", "reward"]
    assert first.curve == again.curve
    assert first.best is not None
    assert again.best is not None
    assert network_bytes(first.best) == network_bytes(again.best)
    file = tmp_path / "mlfs.npz"
    file.write_bytes(network_bytes(first.best))
    assert read_network(str(file)).schema == SCHEMA
    done = lab.run(drawn(lab, 3), "mlfs", cluster="2x4", options=(f"model={file}",), clock="rounds")
    assert set(done.jobs.status.tolist()) == {"completed"}
    assert done.jobs.preemptions.sum() == 0


def test_a_network_for_something_else_is_refused() -> None:
    other = Network(
        "x.npz", "dl2/1", [np.zeros((INPUTS, 1), np.float32)], [np.zeros(1, np.float32)]
    )
    with pytest.raises(BadInput, match=r"x\.npz: a network of dl2/1, not of mlfs/1"):
        ByNetwork(other)


def test_the_highest_score_is_taken() -> None:
    weight = np.zeros((INPUTS, 1), np.float32)
    weight[0] = 1.0
    network = Network("x", SCHEMA, [weight], [np.zeros(1, np.float32)])
    candidates = np.zeros((3, INPUTS), np.float32)
    candidates[:, 0] = [1.0, 3.0, 2.0]
    assert ByNetwork(network).choose(candidates, 0) == 1
