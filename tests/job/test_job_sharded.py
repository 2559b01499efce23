"""Trainings whose state is spread over the ranks, stopped and continued with other numbers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

PROGRAM = (Path(__file__).parent / "sharded_program.py").read_text()
IMPORTED = ("torch", "torch._dynamo")  # the second by the first optimiser


class Trainings:
    """Runs of the program, one after another, in one folder."""

    def __init__(self, ranks: Any, port: int, folder: Path, sharding: str) -> None:
        self.ranks, self.port, self.folder, self.sharding = ranks, port, folder, sharding

    def train(self, size: int, steps: int) -> list[tuple[int, float]]:
        """The first step and the sum of the outputs at the end, of each rank."""
        gang = self.ranks.gang(PROGRAM, size, self.port, self.sharding, str(steps))
        ends = [self.ranks.end(process) for process in gang]
        assert [(code, err) for code, _, err in ends] == [(0, "")] * size
        words = [out[-1].split() for _, out, _ in ends]
        assert all(int(last) == steps for _, _, last in words)
        return [(int(first), float(total)) for first, total, _ in words]

    def newest(self) -> Path:
        return max(self.folder.glob("ckpt/*-*"))


@pytest.fixture
def trainings(ranks: Any, free_port: int, tmp_path: Path, sharding: str) -> Trainings:
    return Trainings(ranks, free_port, tmp_path, sharding)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["fsdp2", "fsdp1", "zero"])
def test_a_sharded_training_goes_on_with_other_numbers_of_ranks(trainings: Trainings) -> None:
    """Sharded over two ranks, then over three, then on one: as if it had never been stopped."""
    ((_, whole),) = trainings.train(1, 12)
    trainings.newest().rename(trainings.folder / "whole")
    assert [first for first, _ in trainings.train(2, 4)] == [0, 0]
    assert [first for first, _ in trainings.train(3, 8)] == [4, 4, 4]
    ((first, total),) = trainings.train(1, 12)
    assert first == 8
    assert total == pytest.approx(whole, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["fsdp2"])
def test_a_damaged_shard_is_noticed_by_all_ranks(trainings: Trainings) -> None:
    trainings.train(2, 3)
    trainings.train(2, 5)
    newest = max(trainings.folder.glob("ckpt/*-*"))
    manifest = json.loads((newest / "manifest.json").read_text())
    files = [part["file"] for part in manifest["parts"] if part["state"] == "shards"]
    assert sorted(files) == ["shards/.metadata", "shards/__0_0.distcp", "shards/__1_0.distcp"]
    shard = newest / "shards" / "__1_0.distcp"
    shard.write_bytes(b"?" + shard.read_bytes()[1:])
    gang = trainings.ranks.gang(PROGRAM, 3, trainings.port, "fsdp2", "6")
    ends = [trainings.ranks.end(process) for process in gang]
    assert [(code, out[-1].split()[0]) for code, out, _ in ends] == [(0, "3")] * 3
    assert sum("__1_0.distcp is damaged; trying the one before" in err for *_, err in ends) == 1
