"""Trainings of real frameworks, stopped and continued, are the ones that were never stopped."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TRAINERS = {  # the modules that each program imports
    "accelerate": ("torch", "accelerate"),
    "huggingface": ("torch", "accelerate", "transformers.trainer"),
    "lightning": ("torch", "lightning.pytorch", "torchdata.stateful_dataloader"),
}

pytestmark = pytest.mark.slow


class Training:
    """The program of one framework, on one or several ranks."""

    def __init__(self, ranks: Any, framework: str, size: int, port: int) -> None:
        for package in (module.partition(".")[0] for module in TRAINERS[framework]):
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed: pip install 'dlsched[frameworks]'")
        self._ranks, self._size, self._port = ranks, size, port
        ranks.imported = TRAINERS[framework]
        self._program = (HERE / f"{framework}_program.py").read_text()

    def run(self, *arguments: str) -> tuple[set[int], list[str], str]:
        """Exit codes of the ranks, stdout of rank 0, stderr of all."""
        gang = self._ranks.gang(
            self._program,
            self._size,
            self._port,
            *arguments,
            LOCAL_WORLD_SIZE=str(self._size),
        )
        texts = [process.communicate(timeout=300) for process in gang]
        codes = {process.returncode for process in gang}
        return codes, texts[0][0].splitlines(), "".join(err for _, err in texts)


def of(out: list[str], word: str) -> str:
    (found,) = [line for line in out if line.startswith(word)]
    return found


@pytest.mark.parametrize(
    ("size", "stops"), [pytest.param(1, (7, 10, 20), marks=pytest.mark.exhaustive), (2, (7,))]
)
def test_a_trainer_of_huggingface_ends_as_if_it_had_never_been_stopped(
    ranks: Any, free_port: int, tmp_path: Path, size: int, stops: tuple[int, ...]
) -> None:
    training = Training(ranks, "huggingface", size, free_port)
    codes, whole, err = training.run(str(tmp_path / "o"), str(tmp_path / "whole"), "0", "0")
    assert codes == {0}, err
    parts = (str(tmp_path / "p"), str(tmp_path / "parts"))
    for stop in stops:  # within an epoch and at its end; the Trainer also saves by itself
        codes, out, err = training.run(*parts, str(stop), "4")
        assert codes == {143}, err
    codes, out, err = training.run(*parts, "0", "4")
    assert codes == {0}, err
    assert int(of(out, "from").split()[1]) >= stops[-1]
    assert of(out, "end") == of(whole, "end")
    assert of(out, "evaluated") == of(whole, "evaluated")


@pytest.mark.parametrize(
    ("size", "stops"), [(1, (4, 10, 17)), pytest.param(2, (6,), marks=pytest.mark.exhaustive)]
)
def test_a_trainer_of_lightning_ends_as_if_it_had_never_been_stopped(
    ranks: Any, free_port: int, tmp_path: Path, size: int, stops: tuple[int, ...]
) -> None:
    training = Training(ranks, "lightning", size, free_port)
    codes, whole, err = training.run(str(tmp_path / "whole"), "0", "stateful")
    assert codes == {0}, err
    validations = [line for line in whole if line.startswith("validated")]
    seen: list[str] = []
    for stop in stops:
        codes, out, err = training.run(str(tmp_path / "parts"), str(stop), "stateful")
        assert codes == {143}, err
        seen += out
    codes, out, err = training.run(str(tmp_path / "parts"), "0", "stateful")
    assert codes == {0}, err
    assert int(of(out, "from").split()[1]) >= stops[-1]
    assert of(out, "end") == of(whole, "end")
    assert [line for line in seen + out if line.startswith("validated")] == validations


def test_loaders_and_numbers_of_ranks_that_lose_the_position_are_refused(
    ranks: Any, free_port: int, tmp_path: Path
) -> None:
    alone = Training(ranks, "lightning", 1, free_port)
    codes, _, err = alone.run(str(tmp_path / "a"), "0", "plain")
    assert codes == {1}
    assert "DataLoader has no state_dict" in err
    assert alone.run(str(tmp_path / "b"), "3", "stateful")[0] == {143}
    both = Training(ranks, "lightning", 2, free_port)
    codes, _, err = both.run(str(tmp_path / "b"), "0", "stateful")
    assert codes == {1}
    assert "is of 1 rank and this run has 2" in err


@pytest.mark.parametrize(
    ("case", "code", "told"),
    [
        ("plain", 1, "a DataLoader keeps no position"),
        ("endless", 1, "keeps no position"),
        ("halfway", 0, "unused gradients are not saved"),
    ],
)
def test_what_accelerate_would_lose_is_refused(
    ranks: Any, free_port: int, tmp_path: Path, case: str, code: int, told: str
) -> None:
    training = Training(ranks, "accelerate", 1, free_port)
    codes, _, err = training.run(str(tmp_path / "checkpoints"), case)
    assert codes == {code}, err
    assert told in err
    steps = [path.name[-1] for path in tmp_path.glob("checkpoints/*")]
    assert sorted(steps) == (["2", "4"] if case == "halfway" else [])
