"""Trainings that are stopped at any step end with the weights of one that is not, bit for bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PROGRAM = (Path(__file__).parent / "exact_program.py").read_text()
BUCKETS = (Path(__file__).parent / "bucket_program.py").read_text()
IMPORTED = ("torch", "torch._dynamo")  # the second by the first optimiser

pytestmark = pytest.mark.slow

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


class Trainings:
    """Runs of the program by so many ranks."""

    def __init__(self, ranks: Any, port: int, kind: str, size: int, *options: str) -> None:
        self._ranks, self._port, self._size = ranks, port, size
        self._words = (kind, *options)

    def run(self, folder: str, leave: int = 0) -> tuple[str, list[str]]:
        """The weights that all ranks end with ("" after an early end), and what rank 0 says."""
        words = (*self._words, "--folder", folder, "--leave", str(leave))
        ends = [
            self._ranks.end(each)
            for each in self._ranks.gang(PROGRAM, self._size, self._port, *words)
        ]
        assert [(code, err) for code, _, err in ends] == [(7 if leave else 0, "")] * self._size
        if leave:
            return "", ends[0][1]
        (last,) = {out[-1] for _, out, _ in ends}
        return last, ends[0][1][:-1]


@pytest.mark.parametrize(
    ("kind", "size", "leaves"),
    [
        ("plain", 1, (3, 9)),  # within an accumulation, at an epoch's end
        pytest.param("plain", 1, (4, 17), marks=pytest.mark.exhaustive),
        ("plain", 2, (5,)),
        pytest.param("plain", 2, (3, 6), marks=pytest.mark.exhaustive),
        ("plain", 4, (3,)),
        ("elastic", 1, (5,)),  # at an epoch's end
        pytest.param("elastic", 1, (2, 7), marks=pytest.mark.exhaustive),
        ("elastic", 2, (3,)),
        pytest.param("elastic", 4, (2,), marks=pytest.mark.exhaustive),
    ],
)
def test_interrupted_at_any_step_the_weights_are_those_of_an_undisturbed_training(
    ranks: Any, free_port: int, kind: str, size: int, leaves: tuple[int, ...]
) -> None:
    workers = "0" if size == 4 else "2"
    trainings = Trainings(ranks, free_port, kind, size, "--workers", workers)
    whole, story = trainings.run("whole")
    told: list[str] = []
    for leave in leaves:
        told += trainings.run("parts", leave)[1]
    parts, last = trainings.run("parts")
    assert parts == whole
    if kind == "elastic":
        assert story == ["epoch 0 True", "epoch 1 True"]
        assert all(line.endswith("True") for line in (*told, *last))  # no epoch without batches


def test_a_checkpoint_that_was_written_in_the_background_is_as_exact(
    ranks: Any, free_port: int
) -> None:
    """After step 6, copied in the middle of an accumulation; the training has gone on meanwhile."""
    trainings = Trainings(ranks, free_port, "plain", 1, "--workers", "0", "--background")
    whole, _ = trainings.run("whole")
    trainings.run("parts", 6)
    assert trainings.run("parts")[0] == whole


def test_the_random_numbers_of_samples_do_not_depend_on_the_workers(
    ranks: Any, free_port: int
) -> None:
    ends = {
        Trainings(ranks, free_port, "plain", 1, "--workers", workers).run(f"with{workers}")[0]
        for workers in ("0", "3")
    }
    assert len(ends) == 1


def test_a_restart_on_four_ranks_sums_gradients_in_the_same_order(
    ranks: Any, free_port: int
) -> None:
    """With other buckets in the first step after a restart, some weights would differ by 1e-8."""

    def ends(folder: str, steps: int) -> set[str]:
        gang = ranks.gang(BUCKETS, 4, free_port, folder, str(steps))
        found = [ranks.end(each) for each in gang]
        assert [(code, err) for code, _, err in found] == [(0, "")] * 4
        return {line for _, out, _ in found for line in out}

    (whole,) = ends("whole", 14)
    ends("parts", 5)
    assert ends("parts", 14) == {whole}
