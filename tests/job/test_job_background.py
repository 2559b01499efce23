"""Checkpoints that are written while the training goes on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from dlsched.job import Job, attach
from dlsched.job.saving import hashed_file
from dlsched.job.saving.checkpoint_folder import CheckpointFolder
from tests.job.test_job_checkpoints import KILLED
from tests.job.test_job_steps import leaving

WITHIN_S = 60.0


def steps_until(job: Job, folder: Path, count: int) -> None:
    """Do steps until there are so many checkpoints."""
    until = time.monotonic() + WITHIN_S
    while len(CheckpointFolder(folder).newest_first()) < count:
        assert time.monotonic() < until
        assert job.step()
        time.sleep(0.001)


class Numbers:
    """A training whose state is a number; each write of it waits for the gate."""

    def __init__(self) -> None:
        self.value = 0
        self.gate = threading.Event()
        self.writers: list[str] = []

    def copy(self) -> Any:
        value = self.value

        def write(file: BinaryIO) -> None:
            self.writers.append(threading.current_thread().name)
            assert self.gate.wait(WITHIN_S)
            file.write(str(value).encode())

        return write

    def save(self, file: BinaryIO) -> None:
        file.write(str(self.value).encode())

    def attach(self, folder: Path, **options: Any) -> Job:
        job = attach(folder=folder, environment={}, background=True, keep=99, **options)
        job.checkpoint.register(
            "numbers", save=self.save, load=self.load, copy=self.copy, try_load=False
        )
        return job

    def load(self, file: BinaryIO) -> None:
        self.value = int(file.read())


def test_nothing_is_written_on_the_path_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Numbers()
    here = threading.current_thread()
    synced = os.fsync

    def sync(descriptor: int) -> None:
        assert threading.current_thread() is not here or training.gate.is_set()
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with training.attach(tmp_path, every_steps=2) as job:
        for step in range(1, 8):
            training.value = step
            assert job.step()  # the copy of step 2 waits to be written
        assert CheckpointFolder(tmp_path).newest_first() == []
        training.gate.set()
        steps_until(job, tmp_path, 1)
    assert set(training.writers) == {"dlsched-checkpoint"}
    newest = CheckpointFolder(tmp_path).newest_first()[-1]
    assert newest.step == 2
    assert (newest.path / "numbers").read_text() == "2"  # as it was after step 2
    newest.verify(newest.parts())


def test_a_stop_waits_for_the_write_and_then_saves_the_last_step(tmp_path: Path) -> None:
    training = Numbers()
    with leaving(), training.attach(tmp_path, every_steps=2) as job:
        for step in range(1, 4):
            training.value = step
            assert job.step()
        training.value = 4
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.05, training.gate.set).start()
        assert not job.step()
    found = {each.step: (each.path / "numbers").read_text() for each in
             CheckpointFolder(tmp_path).newest_first()}  # fmt: skip
    assert found == {2: "2", 4: "4"}
    again = Numbers()
    with again.attach(tmp_path) as job:
        assert (job.restore(), again.value) == (4, 4)


@pytest.mark.parametrize("where", ["copy", "write"])
def test_an_error_in_the_background_leaves_the_old_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    training = Numbers()
    training.gate.set()

    def fails(*given: object) -> Any:
        raise OSError(28, os.strerror(28))

    with training.attach(tmp_path, every_steps=2) as job:
        steps_until(job, tmp_path, 1)
        kept = CheckpointFolder(tmp_path).newest_first()[0].path.name
        training.copy = fails if where == "copy" else lambda: fails  # type: ignore[method-assign]
        states = job.checkpoint.states._states
        states["numbers"] = type(states["numbers"])(
            training.save, training.load, False, False, training.copy
        )
        told, until = "", time.monotonic() + WITHIN_S
        while "no checkpoint after step" not in told:
            assert time.monotonic() < until
            assert job.step()
            told += capsys.readouterr().err
    assert "no space left on" in told
    assert kept in os.listdir(tmp_path)


@pytest.mark.parametrize("point", ["in save", "before sync", "before rename", "after rename"])
def test_killed_while_it_is_written_in_the_background(ranks: Any, point: str) -> None:
    program = KILLED.replace("every_steps=3", "every_steps=3, background=True")
    program = program.replace(
        "    file.write(b\"y\" * size[0])",
        "    file.write(b\"y\" * size[0])\n    sizes.append(size[0])",
    ).replace("size = [0]", "size, sizes = [0], []").replace(
        'where == POINT and size[0] == 6', 'where == POINT and sizes[-1:] == [6]'
    )  # fmt: skip
    # the save of step 3 has to be over before that of step 6 begins
    pause = "time.sleep(0.2 if job.steps in (3, 4, 5) else 0.0)"
    program = program.replace("        job.step()", f"        job.step(); {pause}")
    program = program.replace("import os, signal, sys", "import os, signal, sys, time")
    if point == "in save":
        point = "before sync"
    code, out, _ = ranks.end(ranks.start(program, point, "60"))
    assert (code, out) == (-signal.SIGKILL, ["0"])
    code, out, err = ranks.end(ranks.start(program, "nowhere", "0"))
    assert (code, err) == (0, "")
    assert out == ["6" if point == "after rename" else "3"]


GANG = """
import os, sys, time
from pathlib import Path
from dlsched.job import attach

with attach(folder="ckpt", every_s=None, every_steps=2, background=True, keep=99) as job:
    def copy():
        step = job.steps
        def write(file):
            while job.rank and not Path("gate").exists():
                time.sleep(0.005)
            file.write(str(step).encode())
        return write
    job.checkpoint.register(
        "own", save=lambda f: None, load=lambda f: None, copy=copy, each_rank=True, try_load=False
    )
    done = lambda: [each for each in Path("ckpt").glob("*-*") if each.is_dir()]
    while job.steps < 20:
        job.step()
        time.sleep(0.005)
    print("early", len(done()), flush=True)
    Path(f"ready{job.rank}").touch()
    while not (Path("ready0").exists() and Path("ready1").exists()):
        time.sleep(0.005)
    Path("gate").touch()
    goes_on = True
    while goes_on:  # until rank 0 has seen a checkpoint
        if job.rank == 0 and done():
            os.kill(os.getpid(), 15)
        goes_on = job.step()
        time.sleep(0.005)
    print((min(done()) / f"own.rank{job.rank}").read_text())
"""


def test_the_ranks_agree_that_all_have_written(ranks: Any, free_port: int) -> None:
    ends = [ranks.end(each) for each in ranks.gang(GANG, 2, free_port)]
    assert [(code, err) for code, _, err in ends] == [(143, "")] * 2
    assert [out for _, out, _ in ends] == [["early 0", "2"]] * 2


# -- hashed while written --------------------------------------------------------------------------


def save_at_once(file: BinaryIO) -> None:
    for _ in range(3):
        file.write(b"x" * 100_000)
    file.write(b"y")


def save_going_back(file: BinaryIO) -> None:
    file.write(b"x" * 10)
    file.seek(0)
    file.write(b"y")


def save_to_the_descriptor(file: BinaryIO) -> None:
    file.write(b"x")
    file.flush()
    os.write(file.fileno(), b"y" * 10)


@pytest.mark.parametrize(
    ("save", "reads"), [(save_at_once, 0), (save_going_back, 1), (save_to_the_descriptor, 1)]
)
def test_a_part_is_hashed_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any, reads: int
) -> None:
    read: list[Path] = []
    digest_of = hashed_file.digest_of

    def reading(path: Path) -> str:
        read.append(path)
        return digest_of(path)

    monkeypatch.setattr(hashed_file, "digest_of", reading)
    size, digest = hashed_file.write_hashed(tmp_path / "part", save)
    content = (tmp_path / "part").read_bytes()
    assert (size, digest) == (len(content), hashlib.sha256(content).hexdigest())
    assert len(read) == reads


COPIES = """
import io
import torch
from dlsched.job.pytorch.host_copies import HostCopies

tied = torch.nn.Linear(3, 3, bias=False)
net = torch.nn.ModuleDict({"a": tied, "b": tied, "c": torch.nn.BatchNorm1d(3)})
copies = HostCopies()
state = {"model": net.state_dict(), "plain": [1, (2, "x")]}
first = copies.of(state)
print(first["model"]._metadata == state["model"]._metadata, first["plain"])
place = first["model"]["a.weight"].data_ptr()
print(place == first["model"]["b.weight"].data_ptr() != tied.weight.data_ptr())
with torch.no_grad():
    tied.weight.zero_()
print(bool(first["model"]["a.weight"].any()))
print(copies.of(state)["model"]["a.weight"].data_ptr() == place)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_copy_keeps_what_the_training_changes_and_uses_its_memory_again(ranks: Any) -> None:
    code, out, err = ranks.end(ranks.start(COPIES))
    assert (code, err) == (0, "")
    assert out == ["True [1, (2, 'x')]", "True", "True", "True"]
