"""Ordinary trainings become preemptible in ten lines, and end as if they had not been stopped."""

from __future__ import annotations

import difflib
import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dlsched.job import messages as words

FOLDER = Path(__file__).parents[2] / "examples" / "training"
# No module is `IMPORTED`: a group that ends with its model's last reference, as in these examples,
# can hang in PyTorch 2.13, and in copies of a process it mostly does.
OPTIONS = {"torchrun": (), "accelerate": ("--cpu",)}  # of the example for a package
STOPS = {"torchrun": (4, 6), "accelerate": (5, 8)}  # within the second epoch, and at its end


def programs(package: str) -> tuple[str, str]:
    """The ordinary training and the preemptible one."""
    ordinary, preemptible = (
        (FOLDER / package / f"{name}.py").read_text() for name in ("ordinary", "preemptible")
    )
    return ordinary, preemptible


def answer(stop: int, message: words.FromJob) -> words.FromKeeper | None:
    """What a keeper says that commits checkpoints and wants the ranks to stop after a step."""
    if isinstance(message, words.CheckpointMade):
        return words.CheckpointAnswer(accepted=True, path=message.path)
    return words.StopAt(step=stop) if isinstance(message, words.Hello) else None


@pytest.mark.parametrize("package", OPTIONS)
def test_at_most_ten_lines_are_changed(package: str) -> None:
    before, after = (
        [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]
        for text in programs(package)
    )
    compared = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = [
        max(before[removed:removed_to], after[added:added_to], key=len)
        for kind, removed, removed_to, added, added_to in compared
        if kind != "equal"
    ]
    assert sum(map(len, changed)) <= 10, changed


@pytest.mark.slow
@pytest.mark.parametrize("package", OPTIONS)
def test_it_ends_with_the_weights_of_the_ordinary_one(
    ranks: Any, keeper: Any, free_port: int, tmp_path: Path, package: str
) -> None:
    for needed in {"torch", package} - {"torchrun"}:
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install 'dlsched[frameworks]'")
    ordinary, preemptible = programs(package)
    options = ("--epochs", "3", "--samples", "448", *OPTIONS[package])
    own = {"LOCAL_WORLD_SIZE": "2"}
    whole = [ranks.end(each) for each in ranks.gang(ordinary, 2, free_port, *options, **own)]
    own["DLSCHED_CKPT_DIR"] = str(tmp_path / "ckpt")
    for stop in STOPS[package]:
        keeper.answer = partial(answer, stop)
        gang = ranks.gang(preemptible, 2, free_port, *options, DLSCHED_CTL_SOCK=keeper.path, **own)
        ends = [ranks.end(each) for each in gang]
        assert [code for code, _, _ in ends] == [143, 143], ends
    assert [made.step for made in keeper.all(words.CheckpointMade)] == list(STOPS[package])
    rest = [ranks.end(each) for each in ranks.gang(preemptible, 2, free_port, *options, **own)]
    # What rank 0 tells at the end; a loaded machine may see PyTorch abort when the process exits.
    assert [each[1][-1:] != [] for each in (whole[0], rest[0])] == [True, True], (whole, rest)
    assert rest[0][1][-1].startswith("weights")
    assert rest[0][1][-1] == whole[0][1][-1]
    assert not any(line.startswith("epoch 0") for line in rest[0][1])


@pytest.mark.slow
def test_a_network_of_flax_saved_by_orbax_ends_with_the_weights_of_one_that_was_not_stopped(
    ranks: Any, keeper: Any, free_port: int, tmp_path: Path
) -> None:
    for needed in ("jax", "flax", "optax", "orbax"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: pip install 'dlsched[jax]'")
    program = (FOLDER / "jax" / "preemptible.py").read_text()
    options = ("--epochs", "3", "--samples", "128", "--batch", "32")  # four steps an epoch
    own = {"DLSCHED_CKPT_DIR": str(tmp_path / "ckpt"), "JAX_PLATFORMS": "cpu"}
    (process,) = ranks.gang(program, 1, free_port, *options, JAX_PLATFORMS="cpu")
    whole = ranks.end(process)
    for stop in (6, 8):  # within the second epoch, and at its end
        keeper.answer = partial(answer, stop)
        told = {**own, "DLSCHED_CTL_SOCK": keeper.path}
        code, _, err = ranks.end(*ranks.gang(program, 1, free_port, *options, **told))
        assert code == 143, err
    assert [made.step for made in keeper.all(words.CheckpointMade)] == [6, 8]
    rest = ranks.end(*ranks.gang(program, 1, free_port, *options, **own))
    assert (whole[0], rest[0]) == (0, 0), (whole, rest)
    assert whole[1][-1].startswith("weights")
    assert rest[1][-1] == whole[1][-1]
