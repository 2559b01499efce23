"""`dlsched train dl2` as a user calls it: a network for slots, and one for replays."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from dlsched.cli import extras
from tests.cli.worlds.test_slots_command import JOBS, SPEEDS

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch")
CURVES = {"good": (1, 1.9, 2.8, 3.6), "poor": (1, 1.1, 1.15, 1.17)}


@pytest.fixture
def slots(tmp_path: Path) -> tuple[Path, Path]:
    jobs, speeds = tmp_path / "jobs.csv", tmp_path / "speeds.csv"
    more = (f"{k},1,net,{k},60,100,2,4,2,0\n" for k in range(3, 30))
    jobs.write_text(JOBS + "".join(more))
    speeds.write_text(SPEEDS)
    return jobs, speeds


@pytest.fixture
def elastic(tmp_path: Path) -> tuple[Path, Path]:
    trace, speeds = tmp_path / "trace.csv", tmp_path / "throughputs.csv"
    lines = ["job_id,submit_time,num_gpus,min_gpus,max_gpus,model,total_iterations"]
    lines += [f"{k},{200 * k},1,1,4,{('good', 'poor')[k % 2]},{3000 + 500 * k}" for k in range(12)]
    trace.write_text("\n".join(lines) + "\n")
    rows = ["accelerator,scale_factor,model,batch_size,steps_per_s"]
    rows += [f"v100,{k},{m},,{r}" for m, c in CURVES.items() for k, r in enumerate(c, 1)]
    speeds.write_text("\n".join(rows) + "\n")
    return trace, speeds


@needs_torch
@pytest.mark.slow
def test_a_network_for_slots_is_trained_and_used(
    dlsched: Any, slots: tuple[Path, Path], tmp_path: Path
) -> None:
    jobs, speeds = slots
    model, curve = tmp_path / "model.npz", tmp_path / "curve.csv"
    world = ("--speeds", speeds, "--nodes", 12, "--slot", 1000, "--most-workers", 3)
    words = ("train", "dl2", jobs, *world, "--window", 8, "--every", 10, "--curve", curve)
    done = dlsched(*words, "--updates", 20, "--out", model)
    assert done.code == 0, done.err
    assert "model.npz: the network after" in done.err
    with curve.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["phase"], row["updates"]) for row in rows] == [
        ("start", "0"),
        ("reward", "10"),
        ("reward", "20"),
    ]
    assert len(done.out.splitlines()) == 3
    first = model.read_bytes()
    again = dlsched(*words, "--updates", 20, "--out", tmp_path / "twin.npz")
    assert again.code == 0, again.err
    assert (tmp_path / "twin.npz").read_bytes() == first  # the same seed, the same network
    more = dlsched(*words, "--updates", 30, "--out", model, "--resume")
    assert more.code == 0, more.err
    assert [line.split()[1] for line in more.out.splitlines()] == ["30"]
    used = dlsched("slots", jobs, *world, "--policy", "drf,dl2", "-o", f"model={model}")
    assert used.code == 0, used.err
    assert [line.split()[0] for line in used.out.splitlines()[1:]] == ["drf", "dl2"]


@needs_torch
@pytest.mark.slow
def test_a_network_for_gpus_is_trained_in_replays_and_decides_there(
    dlsched: Any, elastic: tuple[Path, Path], slots: tuple[Path, Path], tmp_path: Path
) -> None:
    trace, speeds = elastic
    model = tmp_path / "model.npz"
    cluster = ("--cluster", "4x4:v100", "--profiles", speeds, "--round", 600)
    done = dlsched("train", "dl2", trace, *cluster, "--updates", 5, "--out", model)
    assert done.code == 0, done.err
    out = tmp_path / "jobs.csv"
    used = dlsched(
        "replay", trace, *cluster, "--policy", "dl2", "-o", f"model={model}", "--jobs-out", out
    )
    assert used.code == 0, used.err
    with out.open() as file:
        assert {row["status"] for row in csv.DictReader(file)} == {"completed"}
    wrong = dlsched(
        "slots", slots[0], "--speeds", slots[1], "--nodes", 1, "--policy", "dl2",
        "-o", f"model={model}",
    )  # fmt: skip
    assert wrong.code == 2
    assert "a network for dl2-gpus/1; the slot world needs one for dl2-servers/1" in wrong.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--updates", 0), "--updates must be from 1 to 1,000,000"),
        (("--warmup", "rl"), "--warmup must be sl or none, not 'rl'"),
        (("--hidden", "5,x"), "--hidden: numbers from 1 to 10,000 are needed, not '5,x'"),
    ],
)
def test_settings_that_cannot_be_are_one_line(
    dlsched: Any, tmp_path: Path, words: tuple[Any, ...], message: str
) -> None:
    refused = dlsched("train", "dl2", "--out", tmp_path / "m", *words)
    assert refused.code == 2
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@needs_torch
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "TRACE is missing; a training in replays needs it"),
        (("--draw", 3), "--draw: only for slots"),
        (("--speeds", "{speeds}"), "give either traces or --draw N"),
        (("--speeds", "{speeds}", "--cluster", "1x1"), "--speeds is for slots; --cluster and"),
        (("{jobs}", "--speeds", "{speeds}", "--resume"), "--resume: "),
    ],
)
def test_worlds_that_are_not_whole_are_one_line(
    dlsched: Any, slots: tuple[Path, Path], tmp_path: Path, words: tuple[Any, ...], message: str
) -> None:
    said = (str(word).format(jobs=slots[0], speeds=slots[1]) for word in words)
    refused = dlsched("train", "dl2", "--out", tmp_path / "m", "--most-workers", 2, *said)
    assert refused.code == 2
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_without_torch_one_line_says_what_installs_it(
    dlsched: Any, slots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.MODULES, "torch", ("no_such_torch",))
    refused = dlsched("train", "dl2", slots[0], "--speeds", slots[1], "--out", tmp_path / "m")
    assert refused.code == 1
    assert "pip install 'dlsched[torch]'" in refused.err
    assert len(refused.err.splitlines()) == 1


@needs_torch
@pytest.mark.slow
def test_a_network_for_mlfs_is_trained_and_decides_in_a_replay(
    dlsched: Any, tmp_path: Path
) -> None:
    trace, model, out = (tmp_path / name for name in ("t.csv", "m.npz", "jobs.csv"))
    rows = [f"{k},{60 * k},{1 + k % 4},{300 + 200 * (k % 3)}" for k in range(12)]
    trace.write_text("\n".join(["job_id,submit_time,num_gpus,duration", *rows]) + "\n")
    words = ("train", "mlfs", trace, "--cluster", "2x4", "--out", model)
    done = dlsched(*words, "--imitations", 2, "--updates", 1)
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["imitation", "reward"]
    words = ("replay", trace, "--cluster", "2x4", "--policy", "mlfs", "--jobs-out", out)
    used = dlsched(*words, "-o", f"model={model}")
    assert used.code == 0, used.err
    with out.open() as file:
        assert {row["status"] for row in csv.DictReader(file)} == {"completed"}
    refused = dlsched("train", "mlfs", trace, "--cluster", "2x4", "--out", model, "--every", 0)
    assert refused.code == 2
    assert "--every must be from 1 to 1,000,000, not 0" in refused.err
