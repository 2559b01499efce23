from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dlsched.job
from dlsched.job import PREEMPTED, Job, JobError, attach
from dlsched.job import messages as words


def scheduled(keeper: Any, **more: str) -> dict[str, str]:
    return {
        "DLSCHED_CTL_SOCK": keeper.path,
        "DLSCHED_JOB_ID": "7",
        "DLSCHED_RUN": "1",
        **more,
    }


@contextmanager
def leaving() -> Iterator[None]:
    """The block ends the program as a preempted job does."""
    with pytest.raises(SystemExit) as left:
        yield
    assert left.value.code == PREEMPTED == 143


def with_state(job: Job) -> Job:
    job.checkpoint.register("x", save=lambda file: file.write(b"x"), load=lambda file: file.read())
    return job


# -- alone -----------------------------------------------------------------------------------------


def test_without_a_scheduler_training_goes_on_to_its_end() -> None:
    with attach(environment={}) as job:
        assert job.restore() == 0
        assert all(job.step(loss=1.0) for _ in range(5))
        assert job.lease
        assert job.deadline() is None
        assert not job.is_scheduled
        assert job.resume_from is None
    assert job.steps == 5


def test_sigterm_ends_it_after_the_step_with_a_checkpoint_and_143(tmp_path: Path) -> None:
    done = []
    with leaving(), attach(folder=tmp_path, environment={}) as job:
        with_state(job)
        for step in range(10):
            done.append(step)
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
                assert not job.stopped
            if not job.step():
                break
    assert done == [0, 1, 2, 3]
    assert job.lease.reason == "signal"
    assert [path.name for path in tmp_path.iterdir()] == ["0001-000000004"]


def test_a_step_after_a_stop_exits_the_program(tmp_path: Path) -> None:
    job = attach(environment={})
    os.kill(os.getpid(), signal.SIGTERM)
    assert not job.step()
    with pytest.raises(SystemExit, match="143"):
        job.step()
    job.close()


def test_closing_gives_the_signal_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with attach(environment={}):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_error_of_the_training_is_not_covered_by_the_stop() -> None:
    def train() -> None:
        with attach(environment={}) as job:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not job.step()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train()


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"RANK": "one"}, "RANK=one: a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT=-1"),
    ],
)
def test_a_wrong_environment_is_an_error_that_names_the_variable(
    environment: dict[str, str], complaint: str
) -> None:
    with pytest.raises(JobError, match=complaint):
        attach(environment=environment)


def test_a_gang_without_a_port_says_what_to_do() -> None:
    with (
        attach(environment={"RANK": "0", "WORLD_SIZE": "2"}) as job,
        pytest.raises(JobError, match="gang=False"),
    ):
        job.step()


def test_ranks_that_are_no_gang_are_on_their_own() -> None:
    with attach(environment={"WORLD_SIZE": "2", "RANK": "1"}, gang=False) as job:
        assert job.step()


# -- with a keeper ---------------------------------------------------------------------------------


def test_it_sends_hello_then_the_start_time_then_its_progress(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        for _ in range(3):
            assert job.step(loss=0.5, accuracy=0.25)
        hello = keeper.wait_for(words.Hello)
        assert (hello.rank, hello.version, hello.pid) == (0, 1, os.getpid())
        assert "stop" in hello.capabilities
        restored = keeper.wait_for(words.Restored)
        assert restored.step == 0
        assert 0 < restored.restart_s < 10_000
        told = keeper.wait_for(words.StepDone)
        assert (told.step, told.loss, told.metrics) == (1, 0.5, {"accuracy": 0.25})


def test_it_reports_at_most_once_a_second(keeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(dlsched.job.job.time, "monotonic", lambda: clock[0])
    with attach(environment=scheduled(keeper), every_s=None) as job:
        for _ in range(25):
            clock[0] += 0.125
            job.step(batch_s=0.125)
        job._link.send(words.StepDone(step=999))
        keeper.wait_for(words.StepDone, lambda message: message.step == 999)
    told = [message.step for message in keeper.all(words.StepDone)]
    assert told == [1, 9, 17, 25, 999]
    assert keeper.all(words.StepDone)[1].batch_s == 0.125


def test_rungs_are_reported_at_their_very_step(
    keeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dlsched.job.job.time, "monotonic", lambda: 100.0)
    environment = scheduled(keeper, DLSCHED_RUNGS="4:3:36")
    with attach(environment=environment, every_s=None) as job:
        for step in range(110):
            job.step(loss=float(step + 1))
        job._link.send(words.StepDone(step=999))
        keeper.wait_for(words.StepDone, lambda message: message.step == 999)
        told = [(message.step, message.loss) for message in keeper.all(words.StepDone)]
    assert told == [(1, 1.0), (4, 4.0), (12, 12.0), (36, 36.0), (999, None)]


@pytest.mark.parametrize("text", ["x", "4", "0:3", "4:1", "4:3:x", "1:2:3:4"])
def test_rungs_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(JobError, match=f"DLSCHED_RUNGS={text}: FIRST:FACTOR"):
        attach(environment={"DLSCHED_RUNGS": text})


def test_a_stop_saves_waits_for_the_commit_and_exits(keeper: Any, tmp_path: Path) -> None:
    def answer(message: words.FromJob) -> words.FromKeeper | None:
        if isinstance(message, words.CheckpointMade):
            assert not (Path(message.path) / "committed").exists()
            return words.CheckpointAnswer(accepted=True, path=message.path)
        return None

    keeper.answer = answer
    environment = scheduled(keeper, DLSCHED_CKPT_DIR=str(tmp_path))
    with leaving(), attach(environment=environment) as job:
        with_state(job)
        assert job.step()
        keeper.wait_for(words.Hello)
        keeper.say(words.Stop(reason="migrate", deadline_s=60.0))
        while job.step():
            pass
        assert job.lease.reason == "migrate"
        left = job.deadline()
        assert left is not None
        assert 30 < left <= 60
    assert keeper.wait_for(words.Leaving) == words.Leaving(finished=False)  # before it saves
    (made,) = keeper.all(words.CheckpointMade)
    assert made.step == job.steps
    assert made.bytes == 1
    assert len(made.sha256) == 64
    assert (Path(made.path) / "committed").exists()


@pytest.mark.parametrize("looks", [False, True], ids=["its steps are over", "it saw the stop"])
def test_a_training_that_leaves_by_itself_has_finished_unless_it_knew_of_the_stop(
    keeper: Any, looks: bool
) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        keeper.say(words.Stop(reason="preempt", deadline_s=60.0))
        job._link.wait(30)
        while looks and job.deadline() is None:
            pass
    assert keeper.wait_for(words.Leaving) == words.Leaving(finished=not looks)


def test_a_script_without_the_library_says_that_its_job_is_done(keeper: Any) -> None:
    command = [sys.executable, "-m", "dlsched.job", "finished"]
    environment = {**os.environ, **scheduled(keeper)}
    assert subprocess.run(command, env=environment, check=False, timeout=60).returncode == 0
    assert keeper.wait_for(words.Leaving) == words.Leaving(finished=True, job=True)
    done = subprocess.run(command[:-1], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "usage: python -m dlsched.job finished\n")


def test_a_refused_checkpoint_is_reported_and_no_run_resumes_from_it(
    keeper: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper.answer = lambda message: (
        words.CheckpointAnswer(accepted=False, why="run 1 is over", path=message.path)
        if isinstance(message, words.CheckpointMade)
        else None
    )
    environment = scheduled(keeper, DLSCHED_CKPT_DIR=str(tmp_path))
    with attach(environment=environment) as job:
        with_state(job)
        job.step()
        job.save()
        keeper.wait_for(words.CheckpointMade)
        job._link.wait(30)
        job.step()
    assert "refused: run 1 is over" in capsys.readouterr().err
    (folder,) = tmp_path.iterdir()
    assert not (folder / "committed").exists()


def test_without_an_answer_the_newest_two_checkpoints_wait_and_training_goes_on(
    keeper: Any, tmp_path: Path
) -> None:
    environment = scheduled(keeper, DLSCHED_CKPT_DIR=str(tmp_path))
    with attach(environment=environment, every_steps=1) as job:
        with_state(job)
        assert all(job.step() for _ in range(6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001-000000005", "0001-000000006"]


def test_a_stop_with_no_time_left_does_not_wait_for_an_answer(keeper: Any, tmp_path: Path) -> None:
    environment = scheduled(keeper, DLSCHED_CKPT_DIR=str(tmp_path))
    with leaving(), attach(environment=environment) as job:
        with_state(job)
        job.step()
        keeper.wait_for(words.Hello)
        keeper.say(words.Stop(deadline_s=0.0))
        while job.step():
            pass
    assert len(keeper.all(words.CheckpointMade)) <= 1


def test_a_named_step_is_the_last_one(keeper: Any) -> None:
    with leaving(), attach(environment=scheduled(keeper)) as job:
        job.step()
        keeper.wait_for(words.Hello)
        keeper.say(words.StopAt(step=40))
        while job.step():
            pass
    assert job.steps >= 40


def test_a_limit_is_shown(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        keeper.say(words.Limit(share=0.5))
        job._link.wait(30)
        job.step()
        assert job.limit.share == 0.5


def test_a_keeper_that_goes_away_does_not_hurt(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        assert job.step()
        keeper.wait_for(words.Hello)
        keeper.close()
        assert all(job.step(batch_s=0.0) for _ in range(3))
        assert not job._link.is_open


def test_a_keeper_that_is_not_there_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with attach(environment={"DLSCHED_CTL_SOCK": str(tmp_path / "no")}) as job:
        assert job.step()
    assert capsys.readouterr().err.count("no keeper at") == 1


def test_garbage_from_a_keeper_is_ignored(keeper: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        keeper.connections[0].send(b"{")
        keeper.connections[0].send(b'{"type":"later-word"}')
        job._link.wait(30)
        assert job.step()
    assert "unreadable message" in capsys.readouterr().err


def test_a_job_that_saves_nothing_is_told_so_once(
    keeper: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "dlsched.job: no state is registered with job.checkpoint: when the scheduler stops"
    environment = scheduled(keeper, DLSCHED_CKPT_DIR=str(tmp_path))
    with attach(environment=environment) as job:
        assert all(job.step() for _ in range(3))
        assert not keeper.wait_for(words.Restored).saves
    assert capsys.readouterr().err.count(told) == 1
    with attach(environment={}) as job:
        assert job.step()
    with attach(environment=environment) as job:
        with_state(job)
        assert job.step()
        job._link.send(words.StepDone(step=999))
        while not any(message.step == 999 for message in keeper.all(words.StepDone)):
            keeper._news.get(timeout=60)
    assert capsys.readouterr().err == ""
    assert [message.saves for message in keeper.all(words.Restored)] == [False, True]


# -- steps that count twice ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "told"),
    [("10" * 6, 1), ("1" * 12, 0), ("0" * 12, 0), ("1000" * 3, 0), ("101011101011", 0)],
    ids=["twice", "once", "never", "many", "other"],
)
def test_a_step_that_is_called_twice_is_noticed(
    capsys: pytest.CaptureFixture[str], moves: str, told: int
) -> None:
    with attach(environment={}) as job:
        sampler = job.sampler(100)
        for moved in moves:
            if moved == "1":
                sampler.advance(1)
            assert job.step()
    assert capsys.readouterr().err.count("step() seems to be called twice") == told


# -- workers ---------------------------------------------------------------------------------------

WORKERS = """
import os, signal, sys
from dlsched.job import attach
job = attach()
def child():
    ask, asking = os.pipe()
    answer, answering = os.pipe()
    pid = os.fork()
    if pid == 0:
        while os.read(ask, 1):
            os.write(answering, b"!")
    def is_alive():
        os.write(asking, b"?")
        return os.read(answer, 1) == b"!"
    assert is_alive()
    return pid, is_alive

alone, _ = child()
os.kill(alone, signal.SIGTERM)                     # a pool that ends its worker
print("alone", os.waitstatus_to_exitcode(os.waitpid(alone, 0)[1]))

worker, is_alive = child()
os.killpg(0, signal.SIGTERM)                       # a runtime that signals its group
print("lives", is_alive())
print("go on", job.step())
os.kill(worker, signal.SIGKILL)
print("worker", os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
job.__exit__(None, None, None)
"""


def test_workers_survive_a_signal_to_all_processes_and_end_with_a_signal_of_their_parent(
    ranks: Any,
) -> None:
    code, out, err = ranks.end(ranks.start(WORKERS))
    assert (code, err) == (143, "")
    assert out == ["alone -15", "lives True", "go on False", "worker -9"]


# -- what it imports -------------------------------------------------------------------------------


def imported(*options: str, path: Path) -> set[str]:
    script = f"import sys; sys.path.insert(0, {str(path)!r}); import dlsched.job, sys; "
    script += "import dlsched.job.launch, dlsched.job.srun; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in found.stdout.split()}


def test_it_needs_the_standard_library_alone() -> None:
    package = Path(dlsched.job.__file__).parents[2]
    loaded = imported("-I", "-S", path=package)
    others = {name for name in loaded if not name.startswith("_")} - sys.stdlib_module_names
    assert others == {"dlsched"}
    assert not loaded & {"asyncio", "multiprocessing", "ssl", "http"}


LEAVING = """
import atexit, os, signal, sys
atexit.register(os.kill, os.getpid(), signal.SIGTERM)  # runs last: late in the program's end
from dlsched.job import attach
with attach() as job:
    job.restore()
    if "fails" in sys.argv:
        raise SystemExit(3)
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("job", "words", "code"),
    [("7", (), 0), ("", (), -signal.SIGTERM), ("7", ("fails",), -signal.SIGTERM)],
    ids=["done", "without a scheduler", "failed"],
)
def test_a_training_that_is_done_is_not_stopped_on_its_way_out(
    tmp_path: Path, job: str, words: tuple[str, ...], code: int
) -> None:
    environment = {**os.environ, "DLSCHED_JOB_ID": job}
    done = subprocess.run(
        [sys.executable, "-c", LEAVING, *words], cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == code
