from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import pytest

from dlsched.job import Job, JobError, attach
from dlsched.job.gang.agreement import Agreement
from dlsched.job.saving import read_back
from dlsched.job.saving.checkpoint_folder import CheckpointFolder
from dlsched.job.saving.first_save import LARGE_BYTES, FirstSave
from dlsched.job.saving.save_errors import room_in, why_not_saved


class Counter:
    """The smallest training there is."""

    def __init__(self, folder: Path | None = None, **environment: str) -> None:
        self.value = 0
        self.folder = folder
        self.environment = environment

    def save(self, file: BinaryIO) -> None:
        file.write(str(self.value).encode())

    def load(self, file: BinaryIO) -> None:
        self.value = int(file.read())

    def attach(self, **options: Any) -> Job:
        job = attach(folder=self.folder, environment=self.environment, **options)
        job.checkpoint.register("counter", save=self.save, load=self.load)
        return job

    def train(self, steps: int, **options: Any) -> int:
        """So many steps; the step that it began from."""
        with self.attach(**options) as job:
            first = job.restore()
            for _ in range(steps):
                self.value += 1
                job.step()
        return first


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_training_goes_on_where_the_newest_checkpoint_was(tmp_path: Path) -> None:
    Counter(tmp_path).train(10, every_steps=4)
    later = Counter(tmp_path)
    assert later.train(1, every_steps=4) == 8
    assert later.value == 9


def test_checkpoints_are_numbered_and_the_newest_two_are_kept(tmp_path: Path) -> None:
    Counter(tmp_path).train(10, every_steps=3)
    assert names(tmp_path) == ["0001-000000006", "0001-000000009"]
    Counter(tmp_path).train(3, every_steps=3)
    assert names(tmp_path) == ["0001-000000009", "0002-000000012"]


def test_without_a_folder_nothing_is_saved() -> None:
    assert Counter().train(3, every_steps=1) == 0


def test_the_clock_asks_for_checkpoints_too(tmp_path: Path) -> None:
    Counter(tmp_path).train(2, every_s=0.0)
    assert names(tmp_path) == ["0001-000000001", "0001-000000002"]


def test_a_damaged_checkpoint_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Counter(tmp_path).train(4, every_steps=2)
    (tmp_path / "0001-000000004" / "counter").write_text("9")
    assert Counter(tmp_path).train(0) == 2
    assert "0001-000000004: counter is damaged; trying the one before" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", '{"format": 9, "parts": []}', '{"parts": [1]}'])
def test_a_damaged_manifest_is_left_out(tmp_path: Path, text: str) -> None:
    Counter(tmp_path).train(4, every_steps=2)
    (tmp_path / "0001-000000004" / "manifest.json").write_text(text)
    assert Counter(tmp_path).train(0) == 2


def test_under_a_daemon_only_what_it_recorded_is_resumed_from(tmp_path: Path, keeper: Any) -> None:
    Counter(tmp_path).train(4, every_steps=2)
    scheduled = {"DLSCHED_CTL_SOCK": keeper.path, "DLSCHED_CKPT_DIR": str(tmp_path)}
    assert Counter(DLSCHED_RUN="2", **scheduled).train(0) == 0
    recorded = str(tmp_path / "0001-000000002")
    assert Counter(DLSCHED_RUN="2", DLSCHED_RESUME_FROM=recorded, **scheduled).train(0) == 2


def test_without_the_recorded_checkpoint_its_run_is_tried_first_and_then_earlier_runs(
    tmp_path: Path,
) -> None:
    Counter(tmp_path).train(8, every_steps=2, keep=4)
    gone = tmp_path / "0001-000000004"
    (gone / "manifest.json").unlink()
    later = tmp_path / "0001-000000006"
    (tmp_path / "0001-000000008" / "counter").write_text("damaged")
    resume = {"DLSCHED_RESUME_FROM": str(gone)}
    assert Counter(**resume).train(0) == 6
    (later / "counter").unlink()
    assert Counter(**resume).train(0) == 2


def test_a_run_that_begins_anew_leaves_no_earlier_checkpoint_to_fall_back_to(
    tmp_path: Path, keeper: Any
) -> None:
    Counter(tmp_path).train(4, every_steps=2, keep=4)
    scheduled = {"DLSCHED_CTL_SOCK": keeper.path, "DLSCHED_CKPT_DIR": str(tmp_path)}
    assert Counter(DLSCHED_RUN="2", **scheduled).train(3, every_steps=1, keep=4) == 0
    for step in (1, 2, 3):
        CheckpointFolder(tmp_path).at(tmp_path / f"0002-00000000{step}").mark_committed()
    newest = tmp_path / "0002-000000003"
    resume = {"DLSCHED_RUN": "3", "DLSCHED_RESUME_FROM": str(newest), **scheduled}
    (newest / "counter").write_text("damaged")
    assert Counter(**resume).train(0) == 2
    for step in (1, 2):
        (tmp_path / f"0002-00000000{step}" / "counter").write_text("damaged")
    assert Counter(**resume).train(0) == 0
    named = {**resume, "DLSCHED_RESUME_FROM": str(tmp_path / "0001-000000004")}
    assert Counter(**named).train(0) == 4


def test_another_librarys_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"my\.ckpt is not a checkpoint of this library"):
        Counter(DLSCHED_RESUME_FROM=str(tmp_path / "my.ckpt")).train(0)


def test_a_state_that_the_checkpoint_lacks_is_an_error(tmp_path: Path) -> None:
    Counter(tmp_path).train(1, every_steps=1)
    job = Counter(tmp_path).attach()
    job.checkpoint.register("more", save=lambda file: None, load=lambda file: None)
    with job, pytest.raises(JobError, match="has no state 'more'; it has counter"):
        job.restore()


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "manifest.json", "committed"])
def test_a_state_needs_a_name_that_can_be_a_file(name: str) -> None:
    with attach(environment={}) as job, pytest.raises(JobError, match="make a name"):
        job.checkpoint.register(name, save=lambda file: None, load=lambda file: None)


def test_a_state_is_registered_once() -> None:
    with Counter().attach() as job, pytest.raises(JobError, match="registered twice"):
        job.checkpoint.register("counter", save=lambda file: None, load=lambda file: None)


def test_a_full_disk_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(tmp_path)
    counter.train(1, every_steps=1)

    def full(file: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(counter, "save", full)
    assert counter.train(2, every_steps=1) == 1
    assert "no checkpoint after step 2" in capsys.readouterr().err
    assert Counter(tmp_path).train(0) == 1


def test_an_error_in_a_script_that_saves_means_no_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counter = Counter(tmp_path)
    counter.train(1, every_steps=1)
    job = counter.attach(every_steps=1)
    job.checkpoint.register("x", save=lambda file: 1 / 0, load=lambda file: None)
    with job:
        assert job.step()
    assert "no checkpoint after step 1: ZeroDivisionError: division by zero" in (
        capsys.readouterr().err
    )
    assert names(tmp_path) == ["0001-000000001"]


def test_unfinished_checkpoints_of_a_killed_run_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "1.tmp" / "5").mkdir(parents=True)
    Counter(tmp_path).train(1, every_steps=1)
    Counter(tmp_path).train(1, every_steps=1)
    assert names(tmp_path) == ["0001-000000001", "0002-000000002"]


def test_names_that_are_not_of_checkpoints_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "0001-5.old", "best-model"):
        (tmp_path / name).mkdir()
    assert CheckpointFolder(tmp_path).newest_first() == []


KILLED = """
import os, signal, sys
from dlsched.job import attach

POINT = sys.argv[1]
size = [0]

def die(where):
    if where == POINT and size[0] == 6:
        os.kill(os.getpid(), signal.SIGKILL)

import dlsched.job.saving.checkpoint_folder as folder
sync, rename = folder._sync_folder, folder.Path.rename
def dying_sync(path):
    die("before sync"); sync(path); die("after sync")
def dying_rename(self, target):
    die("before rename"); found = rename(self, target); die("after rename"); return found
folder._sync_folder, folder.Path.rename = dying_sync, dying_rename

def save(file):
    file.write(b"x" * size[0]); file.flush()
    die("in save")
    file.write(b"y" * size[0])

def load(file):
    data = file.read()
    size[0] = len(data) // 2
    assert data == b"x" * size[0] + b"y" * size[0]

with attach(folder="ckpt", every_steps=3) as job:
    job.checkpoint.register("data", save=save, load=load)
    print(job.restore())
    while job.steps < int(sys.argv[2]):
        size[0] += 1
        job.step()
"""


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("in save", "3"),
        ("before sync", "3"),
        ("after sync", "3"),
        ("before rename", "3"),
        ("after rename", "6"),
    ],
)
def test_a_job_killed_while_it_saves_has_a_whole_checkpoint(
    ranks: Any, point: str, expected: str
) -> None:
    code, out, _ = ranks.end(ranks.start(KILLED, point, "9"))
    assert (code, out) == (-signal.SIGKILL, ["0"])
    code, out, err = ranks.end(ranks.start(KILLED, "nowhere", "0"))
    assert (code, out, err) == (0, [expected], "")


# -- the first save is read back -------------------------------------------------------------------


# in a process of its own: the load is tried in a fork, which tests' threads could stop
UNLOADABLE = """
from dlsched.job import attach

loaded = []
def load(file):
    loaded.append(file.read())
    raise ValueError("of another\\nversion")

with attach(folder="ckpt", every_steps=1) as job:
    job.checkpoint.register("mine", save=lambda file: file.write(b"x"), load=load)
    print(all(job.step() for _ in range(3)), loaded)
"""


def test_a_state_that_cannot_be_loaded_is_named_at_its_first_save(
    ranks: Any, tmp_path: Path
) -> None:
    code, out, err = ranks.end(ranks.start(UNLOADABLE))
    told = "dlsched.job: a restore could not load the state 'mine': ValueError: of another version"
    assert (code, err.strip()) == (0, told)
    assert out == ["True []"]  # not here: it may change what the training uses
    assert names(tmp_path / "ckpt") == ["0001-000000002", "0001-000000003"]


def test_a_load_that_needs_what_only_the_training_has_is_not_called_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = socket.socketpair()

    def load(file: BinaryIO) -> None:
        print("loads")
        here.send(b"!")

    with here, there, Counter(tmp_path).attach(every_steps=1) as job:
        job.checkpoint.register("mine", save=lambda file: file.write(b"x"), load=load)
        job.checkpoint.register(
            "other", save=lambda file: None, load=lambda file: 1 / 0, try_load=False
        )
        assert job.step()
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.recv(1)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


HANGING = """
import os, signal
from dlsched.job import attach
from dlsched.job.saving import checkpoints

checkpoints.TRIAL_AT_END_S = 0.0
children, fork = [], os.fork
def forked():
    children.append(fork())
    return children[-1]
os.fork = forked
os.mkfifo("marks")
def load(file):
    with open("marks", "w") as marks:
        marks.write("called")
    while True:
        signal.pause()
with attach(folder="ckpt", every_steps=1) as job:
    job.checkpoint.register("mine", save=lambda file: file.write(b"x"), load=load)
    print(job.step(), job.step(), job.checkpoint.newest().is_committed)
    with open("marks") as marks:  # waits for the call
        print(marks.read(), job.step())
try:
    os.kill(children[0], 0)
except ProcessLookupError:
    print("it has not outlived the training")
"""


def test_a_load_that_hangs_delays_neither_the_training_nor_the_commit(ranks: Any) -> None:
    code, out, err = ranks.end(ranks.start(HANGING))
    assert (code, err) == (0, "")
    assert out == ["True True True", "called True", "it has not outlived the training"]


@pytest.mark.parametrize("why", ["a stop", "jax"])
def test_nothing_is_tried_at_a_stop_or_where_a_fork_would_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forks"))
    if why == "jax":
        monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    with Counter(tmp_path).attach() as job:
        job.checkpoint.register("mine", save=lambda file: None, load=lambda file: None)
        job.checkpoint.save(1, Agreement(None, 0), at_stop=why == "a stop")
        assert job.checkpoint.newest().is_committed


# in a process of its own: how it treats its children is the whole process's
WITHOUT_CHILDREN = """
import os, signal, sys, time
from dlsched.job import attach

if sys.argv[1] == "ignores":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with attach(folder="ckpt", every_steps=1) as job:
    job.checkpoint.register("mine", save=lambda file: file.write(b"x"), load=lambda file: None)
    job.step()
    if sys.argv[1] == "waits":
        os.wait()
    while job.step() and job.checkpoint.states._trial is not None:
        time.sleep(0.01)
print("trained")
"""


@pytest.mark.parametrize("how", ["ignores", "waits"])
def test_a_script_may_wait_for_all_children_or_for_none(ranks: Any, how: str) -> None:
    assert ranks.end(ranks.start(WITHOUT_CHILDREN, how)) == (0, ["trained"], "")


def test_a_load_that_hangs_ends_though_its_training_has_died(ranks: Any, tmp_path: Path) -> None:
    script = """
import os, time
from dlsched.job import attach
from dlsched.job.saving import read_back

read_back.WITHIN_S = 1.0
job = attach(folder="ckpt", every_steps=1)
def load(file):
    os.mkfifo("alive")
    with open("alive", "w"):  # until this process ends
        time.sleep(600)
job.checkpoint.register("mine", save=lambda file: file.write(b"x"), load=load)
job.step()
while not os.path.exists("alive"):
    time.sleep(0.01)
os._exit(9)
"""
    assert ranks.end(ranks.start(script))[0] == 9
    with (tmp_path / "alive").open("rb") as file:
        assert file.read() == b""  # the end of the child closes it


def test_nothing_is_tried_where_memory_could_become_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "has_room_for_a_copy", lambda: False)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forks"))
    with Counter(tmp_path).attach(every_steps=1) as job:
        assert job.step()


def test_why_a_save_failed_names_what_is_full(tmp_path: Path) -> None:
    def of(number: int) -> str:
        return why_not_saved(OSError(number, os.strerror(number)), tmp_path)

    assert of(errno.ENOSPC) == f"no space left on {tmp_path}"
    assert of(errno.EDQUOT) == f"the disk quota is used up in {tmp_path}"
    assert of(errno.EFBIG).startswith(f"a file in {tmp_path} may not be as large")
    hidden = RuntimeError("unexpected pos 704 vs 598")
    hidden.__context__ = OSError(errno.ENOSPC, "")
    hidden.__context__.__context__ = hidden  # round and round
    assert why_not_saved(hidden, tmp_path) == f"no space left on {tmp_path}"
    assert why_not_saved(ValueError("a\n  b"), tmp_path) == "ValueError: a b"
    assert room_in(tmp_path / "not" / "made") == room_in(tmp_path) > 0


def test_the_first_save_is_foreseen_by_the_sizes_that_states_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = attach(folder=tmp_path / "made")

    def add(name: str, size: int) -> None:
        job.checkpoint.register(
            name, save=lambda file: file.write(b"x" * 10), load=lambda file: None, size=lambda: size
        )

    job.checkpoint.register("unknown", save=lambda file: None, load=lambda file: None)
    assert job.checkpoint.first_save() == FirstSave()
    add("small", 1000)
    assert job.checkpoint.first_save().save_bytes == 1000
    assert job.checkpoint.first_save().save_s is None
    add("large", LARGE_BYTES)
    first = job.checkpoint.first_save()
    assert first.save_bytes == LARGE_BYTES + 1000
    assert first.save_s is not None
    assert first.save_s > 0
    assert names(tmp_path / "made") == []
    assert not capsys.readouterr().err
    add("huge", 1 << 60)
    first = job.checkpoint.first_save()
    assert first.room_bytes is not None
    assert (first.save_bytes or 0) > first.room_bytes
    assert "a checkpoint needs 1.07e+09 GiB, and" in capsys.readouterr().err

    def unknown() -> int:
        raise NotImplementedError("sparse")

    job.checkpoint.register("sparse", save=print, load=print, size=unknown)
    assert job.checkpoint.first_save() == FirstSave()
    assert "the first checkpoint is not foreseen: sparse" in capsys.readouterr().err
    job.close()
