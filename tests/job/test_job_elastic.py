"""Elastic trainings as real processes: no sample lost or repeated, nothing half-saved."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dlsched.job import messages as words
from dlsched.job.saving.checkpoint_folder import CheckpointFolder

PROGRAM = (Path(__file__).parent / "elastic_program.py").read_text()
IMPORTED = ("torch", "torch._dynamo")  # the second by the first optimiser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


def eventually(what: str, condition: Callable[[], Any], within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Story:
    """What the ranks of all runs have done."""

    def __init__(self, folder: Path) -> None:
        self.prefix = str(folder / "seen")

    def of(self, run: int, rank: int = 0) -> list[dict[str, Any]]:
        """A line a pass."""
        path = Path(f"{self.prefix}.{run}.{rank}")
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def places(self, epoch: int, runs: dict[int, int]) -> list[int]:
        """The samples of an epoch, over runs of so many ranks."""
        return [
            place
            for run, size in runs.items()
            for rank in range(size)
            for line in self.of(run, rank)
            if line["epoch"] == epoch
            for place in line["places"]
        ]

    def has(self, run: int, count: int) -> bool:
        """Whether a run has done so many passes."""
        return len(self.of(run)) >= count

    def progress(self, runs: dict[int, int]) -> list[float]:
        return [line["progress"] for run in runs for line in self.of(run)]


def leave(gang: list[Any], ranks: Any) -> int:
    """One rank is asked; the step after which all have left."""
    os.kill(gang[0].pid, signal.SIGTERM)
    ends = [ranks.end(process) for process in gang]
    assert [(code, err) for code, _, err in ends] == [(143, "")] * len(gang)
    (step,) = {int(out[-1].split()[3]) for _, out, _ in ends}
    return step


@pytest.mark.parametrize("local", ["24", "4"], ids=["one pass a step", "several passes"])
def test_resized_in_the_middle_of_an_epoch_each_sample_is_seen_once(
    ranks: Any, free_port: int, tmp_path: Path, local: str
) -> None:
    story = Story(tmp_path)
    given = ("--seen", story.prefix, "--folder", str(tmp_path / "ckpt"), "--local", local)
    step = 0
    for run, size in enumerate((2, 3), 1):
        gang = ranks.gang(PROGRAM, size, free_port, *given, "--pause", "0.1")
        eventually("some steps", partial(story.has, run, 7))
        before, step = step, leave(gang, ranks)
        assert story.of(run)[0]["step"] in (before, before + 1)  # the first pass of a step, or all
        assert story.of(run)[-1]["step"] == step
    (last,) = ranks.gang(PROGRAM, 1, free_port, *given)
    code, out, err = ranks.end(last)
    assert (code, err) == (0, "")
    assert out[0].split()[:3] == ["3", "1", str(step)]
    runs = {1: 2, 2: 3, 3: 1}
    for epoch in (0, 1):
        assert sorted(story.places(epoch, runs)) == list(range(960))
    progress = story.progress(runs)
    assert progress == sorted(progress)
    assert progress[-1] == pytest.approx(80)  # two epochs of 40 steps of 24


def test_killed_while_it_saves_it_goes_on_from_the_checkpoint_before(
    ranks: Any, free_port: int, tmp_path: Path
) -> None:
    story, folder = Story(tmp_path), tmp_path / "ckpt"
    given = ("--seen", story.prefix, "--folder", str(folder), "--every-steps", "5")
    gang = ranks.gang(PROGRAM, 2, free_port, *given, "--ballast", "4000000")
    checkpoints = CheckpointFolder(folder)
    eventually("two checkpoints", lambda: len(checkpoints.newest_first()) >= 2)
    known = checkpoints.newest_first()[0]
    half = folder / "1.tmp"
    eventually("a third is being written", lambda: list(half.glob("*/training")))
    for process in gang:
        process.kill()
    for process in gang:
        ranks.end(process)
    newest = checkpoints.newest_first()[0]
    assert newest.step in (known.step, known.step + 5)  # it may just have been made whole
    newest.verify(newest.parts())
    (again,) = ranks.gang(PROGRAM, 1, free_port, *given, "--ballast", "4000000")
    code, out, err = ranks.end(again)
    assert (code, err) == (0, "")
    assert out[0].split()[:3] == ["2", "1", str(newest.step)]
    assert not half.exists()
    assert sorted(story.places(1, {2: 1})) == list(range(960))


@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
def test_the_noise_is_about_the_same_however_many_ranks_measure_it(
    ranks: Any, free_port: int, tmp_path: Path, adam: bool
) -> None:
    found = []
    for size, local in ((1, "24"), (1, "6"), (2, "3"), (3, "24")):
        given = ["--seen", str(tmp_path / f"seen{size}.{local}"), "--local", local]
        given += ["--adam"] if adam else []
        ends = [ranks.end(p) for p in ranks.gang(PROGRAM, size, free_port, *given)]
        assert [(code, err) for code, _, err in ends] == [(0, "")] * size
        (same,) = {tuple(out[-1].split()[5:7]) for _, out, _ in ends}  # on all ranks
        found.append([float(number) for number in same])
    sqr, var = zip(*found, strict=True)
    assert max(sqr) < 1.5 * min(sqr)
    assert max(var) < 1.5 * min(var)


ADAPTS = ("--maximum", "96", "--local", "48", "--samples", "480", "--epochs", "3")


def test_it_reports_to_its_keeper_and_uses_a_better_batch_size(
    ranks: Any, keeper: Any, tmp_path: Path
) -> None:
    story = Story(tmp_path)

    def answer(message: words.FromJob) -> words.FromKeeper | None:
        return words.UseBatch(local=48, accumulation=1) if type(message) is words.Trained else None

    keeper.answer = answer
    environment = {
        "DLSCHED_JOB_ID": "7", "DLSCHED_RUN": "1", "DLSCHED_RUN_ID": "r7",
        "DLSCHED_CTL_SOCK": keeper.path, "DLSCHED_CKPT_DIR": str(tmp_path / "ckpt"),
    }  # fmt: skip
    process = ranks.start(
        PROGRAM, "--seen", story.prefix, *ADAPTS, "--report", "0.05", "--pause", "0.05",
        environment=environment,
    )  # fmt: skip
    told = keeper.wait_for(words.Trained, lambda m: m.progress > 20)
    code, _, err = ranks.end(process)
    assert (code, err) == (0, "")
    assert keeper.all(words.Hello)[0].run_id == "r7"
    assert (told.nodes, told.replicas, told.initial, told.maximum) == (1, 1, 24, 96)
    assert (told.local_min, told.local_max, told.may_accumulate, told.fixed) == (1, 48, True, False)
    assert set(told.local) <= {24, 48}
    assert len(told.local) == len(told.steps) == len(told.accumulation_s) == len(told.optimiser_s)
    assert all(0 < a <= b for a, b in zip(told.accumulation_s, told.optimiser_s, strict=True))
    assert told.gradient_sqr >= 0
    assert told.gradient_var > 0
    lines = story.of(1)
    assert lines[0]["local"] == 24
    assert (lines[-1]["local"], lines[-1]["passes"]) == (48, 2)
    assert {line["local"] for line in lines[:20]} == {24}  # not within a pass of the data
    progress = [line["progress"] for line in lines]
    assert progress == sorted(progress)
    assert 60 <= progress[-1] < 63  # three epochs of 20 steps at the initial batch size
    assert lines[-1]["step"] < 60  # in fewer of more samples


@pytest.mark.parametrize(
    ("how", "wish"),
    [
        (("--measure", "0"), ("48", "1")),  # without measurements the best is unknown
        (("DLSCHED_FIXED_BATCH",), ("48", "1")),
        ((), ("480", "0")),  # more than a rank can have
    ],
)
def test_the_batch_size_stays_where_it_must(
    ranks: Any, tmp_path: Path, how: tuple[str, ...], wish: tuple[str, str]
) -> None:
    story = Story(tmp_path)
    options = [word for word in how if not word.startswith("DLSCHED")]
    environment = {"DLSCHED_LOCAL_BATCH": wish[0], "DLSCHED_ACCUMULATION": wish[1]}
    environment |= {word: "1" for word in how if word.startswith("DLSCHED")}
    process = ranks.start(
        PROGRAM, "--seen", story.prefix, *ADAPTS, *options, environment=environment
    )
    code, _, err = ranks.end(process)
    assert (code, err) == (0, "")
    assert {(line["local"], line["passes"]) for line in story.of(1)} == {(24, 1)}
    assert len(story.of(1)) == 60
